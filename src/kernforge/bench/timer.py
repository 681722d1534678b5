# SPDX-License-Identifier: Apache-2.0
"""Timers of the CPU and of a CUDA device, and the state of the GPU during a run.

CPU: the monotonic clock around each call. CUDA: a pair of events around it. ``torch.cuda._sleep``
holds the GPU until the calls are queued, so that the device's time is measured and not Python's;
for a cold call, twice the L2 cache is written before the first event.
"""

from __future__ import annotations

import contextlib
import importlib
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

_CPU_CACHE = 64 << 20
_LONGEST_SLEEP_S = 0.1
_CALIBRATION_CYCLES = 20_000_000
_CAPTURE_WARM_UP = 3


class CpuTimer:
    """Times calls that end when they return."""

    def __init__(self) -> None:
        self._dirt = self._buffer()

    def _buffer(self) -> Any:
        """A buffer larger than a core's share of the last-level cache."""
        import torch

        return torch.zeros(_CPU_CACHE, dtype=torch.uint8)

    def flush(self, _place: int) -> None:
        """Write over the caches."""
        self._dirt.add_(1)

    def block(
        self,
        call: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        before: Callable[[int], None],
        keep: int,
    ) -> tuple[list[float], Any]:
        """Nanoseconds of each call, and the result of the one whose place is ``keep``.

        Args:
            before: called with the place of each call before it; its time does not count.
        """
        clock = time.perf_counter_ns
        times, chosen = [], None
        for place, given in enumerate(arguments):
            before(place)
            start = clock()
            result = call(*given)
            times.append(float(clock() - start))
            if place == keep:
                chosen = result
        return times, chosen


class CudaTimer(CpuTimer):
    """Times calls that queue work on the current stream of a CUDA device."""

    def __init__(self) -> None:
        super().__init__()
        self._queued_s: dict[object, float] = {}
        _hold(_CALIBRATION_CYCLES)  # the first wakes the GPU
        start, end = _events()
        start.record()
        _hold(_CALIBRATION_CYCLES)
        end.record()
        end.synchronize()
        self._hertz = _CALIBRATION_CYCLES / start.elapsed_time(end) * 1e3

    def _buffer(self) -> Any:
        """A buffer of twice the L2 cache."""
        import torch

        size = 2 * torch.cuda.get_device_properties(0).L2_cache_size
        return torch.zeros(size, dtype=torch.uint8, device="cuda")

    def block(
        self,
        call: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        before: Callable[[int], None],
        keep: int,
    ) -> tuple[list[float], Any]:
        """As that of ``CpuTimer``."""
        import torch

        chosen = None
        pairs = [_events() for _ in arguments]
        torch.cuda.synchronize()
        # As long as the host took to queue such a block the last time.
        wait_s = min(_LONGEST_SLEEP_S, 1.5 * self._queued_s.get(call, 1e-3 * len(pairs)))
        _hold(wait_s * self._hertz)
        began = time.perf_counter()
        for place, given in enumerate(arguments):
            before(place)
            pairs[place][0].record()
            result = call(*given)
            pairs[place][1].record()
            if place == keep:
                chosen = result
        self._queued_s[call] = time.perf_counter() - began
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e6 for start, end in pairs], chosen


def _hold(cycles: float) -> None:
    """Let the GPU wait."""
    import torch

    torch.cuda._sleep(int(cycles))  # noqa: SLF001 - torch has no other


def _events() -> tuple[Any, Any]:
    """The events around a call."""
    import torch

    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def capture(
    call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
) -> tuple[Any, list[Any]]:
    """A CUDA graph of the calls, and their results, which each replay writes."""
    import torch

    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that the mode is a prototype
        torch.cuda.set_sync_debug_mode("error")  # a failed capture leaves torch's allocator in it
    try:
        call(*arguments[0])
    finally:
        torch.cuda.set_sync_debug_mode(mode)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(_CAPTURE_WARM_UP):
            call(*arguments[0])
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = [call(*given) for given in arguments]
    return graph, results


@dataclass
class Gpu:
    """torch's first GPU as NVML knows it during a run.

    Attributes:
        unavailable: why its clock and driver are unknown; "" if they are known.
        clocks_mhz: the lowest and the highest clock of the multiprocessors; empty if unknown.
    """

    name: str = ""
    driver: str = ""
    unavailable: str = ""
    clocks_mhz: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        import torch

        self.name = torch.cuda.get_device_name(0)
        try:
            self._nvml = nvml = importlib.import_module("pynvml")
            nvml.nvmlInit()
            # CUDA_VISIBLE_DEVICES counts otherwise than NVML does.
            uuid = torch.cuda.get_device_properties(0).uuid
            self._handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self.driver = str(nvml.nvmlSystemGetDriverVersion())
        except Exception as error:  # noqa: BLE001 - NVML's; it is missing, or torch has no uuid
            self.unavailable = str(error) or type(error).__name__

    def read(self) -> None:
        """Record the clock."""
        if self.unavailable:
            return
        nvml = self._nvml
        with contextlib.suppress(nvml.NVMLError):
            clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
            clocks = (*self.clocks_mhz, clock)
            self.clocks_mhz = (min(clocks), max(clocks))

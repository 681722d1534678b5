# SPDX-License-Identifier: Apache-2.0
"""The clock of a device, and what its GPU reports while it ticks.

CPU: the monotonic clock around each call. CUDA: a pair of events around it. ``torch.cuda._sleep``
holds the GPU until the calls are queued, so that the device's time is measured and not Python's;
for a cold call, twice the L2 cache is written before the first event.
"""

from __future__ import annotations

import contextlib
import importlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

_CPU_CACHE = 64 << 20
_LONGEST_SLEEP_S = 0.1
_CALIBRATION_CYCLES = 20_000_000
_CAPTURE_WARM_UP = 3
# ``nvmlClocksEventReasons`` of nvml.h: power, heat, and faults of the hardware.
_REASONS = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}


class CpuTimer:
    """Times calls that end when they return."""

    def __init__(self) -> None:
        import torch

        self._dirt = torch.zeros(_CPU_CACHE, dtype=torch.uint8)

    def flush(self) -> None:
        """Write over a buffer larger than a core's share of the last-level cache."""
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
        times, kept = [], None
        for place, given in enumerate(arguments):
            before(place)
            start = clock()
            result = call(*given)
            times.append(float(clock() - start))
            if place == keep:
                kept = result
        return times, kept

    def capture(self, call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> NoReturn:
        """A CPU has no graphs."""
        raise NotImplementedError


class CudaTimer:
    """Times calls that queue work on the current stream of a CUDA device."""

    def __init__(self) -> None:
        import torch

        cache = torch.cuda.get_device_properties(0).L2_cache_size
        self._dirt = torch.zeros(2 * cache, dtype=torch.uint8, device="cuda")
        self._hertz = self._rate_of_sleep()
        self._queued_s: dict[object, float] = {}

    def _rate_of_sleep(self) -> float:
        """Cycles of ``torch.cuda._sleep`` a second."""
        import torch

        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_CALIBRATION_CYCLES)  # noqa: SLF001 - the first wakes the GPU
        start.record()
        torch.cuda._sleep(_CALIBRATION_CYCLES)  # noqa: SLF001 - torch has no other
        end.record()
        end.synchronize()
        return float(_CALIBRATION_CYCLES / start.elapsed_time(end) * 1e3)

    def flush(self) -> None:
        """Write over the L2 cache."""
        self._dirt.add_(1)

    def block(
        self,
        call: Callable[..., Any],
        arguments: Sequence[tuple[Any, ...]],
        before: Callable[[int], None],
        keep: int,
    ) -> tuple[list[float], Any]:
        """As that of ``CpuTimer``."""
        import torch

        kept = None
        pairs = [tuple(torch.cuda.Event(enable_timing=True) for _ in range(2)) for _ in arguments]
        torch.cuda.synchronize()
        # As long as the host took to queue such a block the last time.
        wait_s = min(_LONGEST_SLEEP_S, 1.5 * self._queued_s.get(call, 1e-3 * len(pairs)))
        torch.cuda._sleep(int(wait_s * self._hertz))  # noqa: SLF001 - as above
        began = time.perf_counter()
        for place, given in enumerate(arguments):
            before(place)
            pairs[place][0].record()
            result = call(*given)
            pairs[place][1].record()
            if place == keep:
                kept = result
        self._queued_s[call] = time.perf_counter() - began
        torch.cuda.synchronize()
        return [start.elapsed_time(end) * 1e6 for start, end in pairs], kept

    def capture(
        self, call: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]
    ) -> tuple[Any, list[Any]]:
        """A CUDA graph of the calls, and their results, which each replay writes.

        Raises:
            RuntimeError: a call waits for the GPU.
        """
        import torch

        mode = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode(
            "error"
        )  # a capture that fails leaves torch's allocator in it
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


def open_timer(device: str) -> CpuTimer | CudaTimer:
    """The clock of ``cpu`` or ``cuda``."""
    return CudaTimer() if device == "cuda" else CpuTimer()


class Gpu:
    """torch's first GPU as NVML knows it; without NVML it reports nothing.

    Attributes:
        unavailable: why it does not report; empty where it does.
        driver: version of the driver, where it is known.
    """

    def __init__(self) -> None:
        import torch

        self.unavailable, self.driver = "", ""
        self._nvml: Any = None
        try:
            nvml = importlib.import_module("pynvml")
        except ImportError:
            self.unavailable = "NVML's package is not installed: pip install nvidia-ml-py"
            return
        try:
            nvml.nvmlInit()
            # CUDA_VISIBLE_DEVICES counts otherwise than NVML does.
            uuid = torch.cuda.get_device_properties(0).uuid
            self._handle = nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
            self.driver = str(nvml.nvmlSystemGetDriverVersion())
            self._nvml = nvml
        except (nvml.NVMLError, AttributeError) as error:  # a torch before 2.5 has no uuid
            self.unavailable = str(error)

    def reading(self) -> tuple[float, frozenset[str]]:
        """The clock of the multiprocessors in MHz, 0 where unknown, and what holds it back."""
        clock, bits = 0.0, 0
        if nvml := self._nvml:
            with contextlib.suppress(nvml.NVMLError):
                clock = float(nvml.nvmlDeviceGetClockInfo(self._handle, nvml.NVML_CLOCK_SM))
                bits = int(nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle))
        return clock, frozenset(name for bit, name in _REASONS.items() if bits & bit)

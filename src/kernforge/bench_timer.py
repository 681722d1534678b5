# SPDX-License-Identifier: Apache-2.0
"""Clocks of one device, taken hold of before any candidate's code is loaded.

CPU: the monotonic clock around the call. CUDA: a pair of events around it, with other work still
queued before the first, so that the device's time is measured and not Python's; then the host waits
for the whole device, and what was still running beyond the second event is added: work on another
stream counts. ``cuCtxResetPersistingL2Cache`` is the driver's (CUDA driver API, 6.9).
"""

from __future__ import annotations

import contextlib
import ctypes
import statistics
import time
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

_CPU_CACHE = 32 << 20
_EVENT_NOISE_NS = 10_000.0
_BUSY_CYCLES = 200_000  # About 0.1 ms: longer than Python takes to queue a call.


class Timer(Protocol):
    """A device's clock."""

    def flush(self) -> None:
        """Leave nothing in the caches that a call could use."""
        ...

    def settle(self) -> None:
        """Wait until the device has nothing to do."""
        ...

    def time(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
        """Result of a call, and its nanoseconds on the device."""
        ...

    def time_launch(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
        """Result of a call, and its nanoseconds on the host until the device was idle."""
        ...


class CpuTimer:
    """Times calls that end when they return."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self._clock = time.perf_counter_ns
        self._dirt = torch.zeros(_CPU_CACHE, dtype=torch.uint8)
        self._add = torch.Tensor.add_

    def flush(self) -> None:
        """Write a buffer that is larger than the last-level cache's share of a core."""
        self._add(self._dirt, 1)

    def settle(self) -> None:
        """Nothing is queued on a CPU."""

    def time(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
        """Result and nanoseconds of a call."""
        clock = self._clock
        start = clock()
        result = call(*given)
        return result, float(clock() - start)

    time_launch = time


class CudaTimer:
    """Times calls that queue work on a CUDA device."""

    def __init__(self) -> None:
        import torch  # noqa: PLC0415

        self._clock = time.perf_counter_ns
        self._sync = torch.cuda.synchronize
        self._event, self._elapsed = torch.cuda.Event, torch.cuda.Event.elapsed_time
        self._record, self._wait = torch.cuda.Event.record, torch.cuda.Event.synchronize
        size = 4 * torch.cuda.get_device_properties(0).L2_cache_size
        self._dirt = torch.empty(size, dtype=torch.uint8, device="cuda")
        self._clean = torch.ones(size // 4, dtype=torch.int32, device="cuda")
        self._zero, self._sum = torch.Tensor.zero_, torch.Tensor.sum
        self._reset: Callable[[], int] | None = None
        with contextlib.suppress(OSError, AttributeError):
            self._reset = ctypes.CDLL("libcuda.so.1").cuCtxResetPersistingL2Cache
        self._sleep = torch.cuda._sleep  # noqa: SLF001 - the one way to keep a stream busy
        self._idle_ns = self._cost_of_idle()

    def _cost_of_idle(self) -> float:
        costs = []
        for _ in range(50):
            self._sync()
            start = self._clock()
            self._sync()
            costs.append(self._clock() - start)
        return statistics.median(costs)

    def flush(self) -> None:
        """Overwrite the L2 cache, then fill it with clean lines, so that no write-back is left."""
        if self._reset is not None:
            self._reset()
        self._zero(self._dirt)
        self._sum(self._clean)

    def settle(self) -> None:
        """Wait for every stream of the device."""
        self._sync()

    def time(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
        """Result and nanoseconds between two events, and what ran on other streams after them."""
        start, end = self._event(enable_timing=True), self._event(enable_timing=True)
        self._sleep(_BUSY_CYCLES)
        self._record(start)
        result = call(*given)
        self._record(end)
        self._wait(end)
        ended = self._clock()
        self._sync()
        late = self._clock() - ended - self._idle_ns
        spent = self._elapsed(start, end) * 1e6
        return result, spent + (late if late > _EVENT_NOISE_NS else 0.0)

    def time_launch(self, call: Callable[..., Any], given: tuple[Any, ...]) -> tuple[Any, float]:
        """Result and nanoseconds of the host from an idle device to an idle device."""
        self._sync()
        start = self._clock()
        result = call(*given)
        self._sync()
        return result, float(self._clock() - start)


def open_timer(device: str) -> CpuTimer | CudaTimer:
    """The clock of ``cpu`` or ``cuda``."""
    return CudaTimer() if device == "cuda" else CpuTimer()


class Clock:
    """Reads a GPU's SM clock through NVML where its package is installed."""

    def __init__(self, device: str) -> None:
        self._nvml: Any = None
        if device != "cuda":
            return
        with contextlib.suppress(ImportError):
            import pynvml  # noqa: PLC0415

            with contextlib.suppress(pynvml.NVMLError):
                pynvml.nvmlInit()
                self._handle = pynvml.nvmlDeviceGetHandleByIndex(0)
                self._nvml = pynvml

    def mhz(self) -> float | None:
        """Clock of the multiprocessors now; None where it cannot be read."""
        if self._nvml is None:
            return None
        with contextlib.suppress(self._nvml.NVMLError):
            return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, self._nvml.NVML_CLOCK_SM))
        return None

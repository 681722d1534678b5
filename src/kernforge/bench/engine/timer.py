# SPDX-License-Identifier: Apache-2.0
"""The clock of a device, whose functions are bound before a candidate's code is loaded.

CPU: the monotonic clock around the call. CUDA: a pair of events around it behind a gate that holds
the whole device until the call is queued, so that the device's time is measured and not Python's;
then the host waits for the whole device, and what was still running beyond the second event is
added: work on another stream counts. Calls in a row can be captured as one CUDA graph, which is
replayed on new inputs.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from kernforge.bench.engine.cuda_driver import Driver
from kernforge.bench.engine.gate import Gate

_CPU_CACHE = 32 << 20
_LATE_NS = 10_000.0  # A host that waits twice sees the device idle within this.


class CpuTimer:
    """Times calls that end when they return."""

    def __init__(self) -> None:
        import torch

        self._clock = time.perf_counter_ns
        self._dirt = torch.zeros(_CPU_CACHE, dtype=torch.uint8)
        self._add = torch.Tensor.add_

    def settle(self) -> None:
        """Nothing is queued on a CPU."""

    def time(
        self, call: Callable[..., Any], given: tuple[Any, ...], *, cold: bool = False
    ) -> tuple[Any, float]:
        """Result and nanoseconds of a call.

        Cold: a buffer larger than the last-level cache's share of a core is written before.
        """
        if cold:
            self._add(self._dirt, 1)
        clock = self._clock
        start = clock()
        result = call(*given)
        return result, float(clock() - start)

    def time_launch(
        self, call: Callable[..., Any], given: Sequence[tuple[Any, ...]]
    ) -> tuple[list[Any], float]:
        """Results and nanoseconds of calls one after the other."""
        clock = self._clock
        start = clock()
        results = [call(*each) for each in given]
        return results, float(clock() - start)


class CudaTimer:
    """Times calls that queue work on a CUDA device."""

    def __init__(self) -> None:
        import torch

        torch.cuda.init()
        torch.cuda.synchronize()  # the context is there now
        self._clock = time.perf_counter_ns
        self._driver = Driver()
        self._stream: int = torch.cuda.current_stream().cuda_stream
        self._gate = Gate(self._driver, self._stream)
        self._start, self._end = self._driver.event(), self._driver.event()
        self._idle_ns, self._noise_ns = self._cost_of_idle()

    def _cost_of_idle(self) -> tuple[float, float]:
        """Nanoseconds of a wait on an idle device: the median, and the longest but a few."""
        costs = []
        for _ in range(200):
            self.settle()
            start = self._clock()
            self.settle()
            costs.append(self._clock() - start)
        costs.sort()
        usual = statistics.median(costs)
        return usual, max(_LATE_NS, costs[-len(costs) // 50] - usual)

    def settle(self) -> None:
        """Wait for every stream of the device."""
        self._driver.settle()

    def time(
        self, call: Callable[..., Any], given: tuple[Any, ...], *, cold: bool = False
    ) -> tuple[Any, float]:
        """Result and nanoseconds between two events, and what ran on other streams after them."""
        driver, gate, clock = self._driver, self._gate, self._clock
        driver.settle()
        gate.close(flush=cold)
        driver.record(self._start, self._stream)
        try:
            result = call(*given)
            driver.record(self._end, self._stream)
        finally:
            gate.open()
        driver.wait(self._end)
        ended = clock()
        driver.settle()
        late = clock() - ended - self._idle_ns
        spent = driver.elapsed_ns(self._start, self._end)
        return result, spent + (late if late > self._noise_ns else 0.0)

    def time_launch(
        self, call: Callable[..., Any], given: Sequence[tuple[Any, ...]]
    ) -> tuple[list[Any], float]:
        """Results and nanoseconds of the host from an idle device to an idle device."""
        settle, clock = self._driver.settle, self._clock
        settle()
        start = clock()
        results = [call(*each) for each in given]
        settle()
        return results, float(clock() - start)


Timer: TypeAlias = CpuTimer | CudaTimer


def open_timer(device: str) -> Timer:
    """The clock of ``cpu`` or ``cuda``."""
    return CudaTimer() if device == "cuda" else CpuTimer()


class UncapturableError(Exception):
    """A candidate that cannot be captured in a CUDA graph."""


class Graph:
    """Calls in a row as one CUDA graph, whose inputs are copied in before each replay.

    Raises:
        UncapturableError: the calls cannot be captured.
    """

    def __init__(self, call: Callable[..., Any], given: list[tuple[Any, ...]]) -> None:
        import torch

        self._inputs, self.calls = given, len(given)
        self._graph = torch.cuda.CUDAGraph()
        self._plain, self._copy = torch.Tensor, torch.Tensor.copy_
        try:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                call(*self._inputs[0])
            torch.cuda.current_stream().wait_stream(side)
            with torch.cuda.graph(self._graph):
                self._results = [call(*each) for each in self._inputs]
        except RuntimeError as error:
            raise UncapturableError(f"it cannot be captured in a CUDA graph: {error}") from error

    def time(
        self, timer: Timer, given: list[tuple[Any, ...]], *, cold: bool
    ) -> tuple[list[Any], float]:
        """Results of one replay on these inputs, and its nanoseconds; a last group may be short.

        Cold: the caches are flushed. Else they hold what fits of the inputs, which were just written.
        """
        for kept, new in zip(self._inputs, given, strict=False):
            for target, source in zip(kept, new, strict=True):
                if type(source) is self._plain:
                    self._copy(target, source)
        _, spent = timer.time(self._graph.replay, (), cold=cold)
        return self._results[: len(given)], spent * len(given) / len(self._inputs)

# SPDX-License-Identifier: Apache-2.0
"""The process that runs one candidate: ``python -m kernforge.bench.engine.worker SPEC READ WRITE``.

It does one request of the judge after the other. The judge compares its clock with this process's,
and checks the results itself. The functions of torch that are needed here are bound before the
candidate's file is loaded, so that a candidate that patches torch patches only itself.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import exchange, messages
from kernforge.bench.engine import timer as engine_timer
from kernforge.bench.engine import workload as engine_workload
from kernforge.bench.engine.contender import Contender, RefusedError, nothing
from kernforge.bench.engine.messages import (
    Acknowledged,
    BeginWorkload,
    CollectInputs,
    CollectResults,
    JudgePipe,
    Measure,
    Prepare,
    Refused,
    ReleaseMemory,
    Skipped,
    Times,
    WorkerStart,
)
from kernforge.bench.engine.timer import Graph, UncapturableError
from kernforge.system import garbage

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor as Torch

    from kernforge.bench.engine.contender import Callee
    from kernforge.bench.engine.messages import Reply, Request
    from kernforge.bench.engine.workload import Mode

_TOUCHED = 32 << 20
_LINE = 64
_PDEATHSIG = 1  # prctl(2)
_LONGEST = 2000  # Characters of a reason.


class LeftOutError(Exception):
    """A candidate says that it does not compute a workload."""


class Engine:
    """Torch's own functions, and what a call may give back."""

    def __init__(self, start: WorkerStart) -> None:
        import torch

        self.device = start.device
        self.timer = engine_timer.open_timer(self.device)
        self._shared = exchange.open_buffer(start.buffer)
        self._types = {name: getattr(torch, name) for name in engine_workload.SIZES}
        self._Tensor, self._strided, self._empty = torch.Tensor, torch.strided, torch.empty
        self._copy, self._sum, self._storage = (
            torch.Tensor.copy_,
            torch.Tensor.sum,
            torch.Tensor.untyped_storage,
        )
        self._copy_all = torch._foreach_copy_
        self._view, self._uint8 = torch.Tensor.view, torch.uint8
        # A GPU cannot copy the unsigned ones in one launch.
        self._signed = {
            torch.uint16: torch.int16,
            torch.uint32: torch.int32,
            torch.uint64: torch.int64,
        }
        self._give_back = torch.cuda.empty_cache
        self.collector = garbage.Collector()
        self._place, self._anywhere = os.sched_setaffinity, os.sched_getaffinity(0)
        self._cpu = start.cpu

    def settle_in(self, mode: Mode) -> None:
        """Stop the collector; in ``launch`` mode, keep to the processor that all candidates use."""
        self.collector.stop()
        if self._cpu is not None and mode == "launch":
            self._place(0, {self._cpu})

    def move_on(self) -> None:
        """Allow this thread all processors again, and start the collector."""
        if self._cpu is not None:
            self._place(0, self._anywhere)
        self.collector.go_on()

    def begin(self, work: BeginWorkload) -> None:
        """Begin a workload: its layout, arguments, and positions of inputs that may alias."""
        self.inplace, self.layout = frozenset(work.inplace), work.layout
        self._arguments = work.arguments
        self.held: tuple[Torch, ...] = ()
        self.release()
        self.held = tuple(
            self._empty(size, dtype=self._uint8, device=self.device) for size in work.held
        )

    def release(self) -> None:
        """Return unused memory of the GPU, which other processes need."""
        if self.device == "cuda":
            self._give_back()

    def views(self, call: int) -> tuple[list[Torch], list[Torch]]:
        """A call's inputs and results in the exchange."""
        parts = (*self.layout.inputs, *self.layout.outputs)
        views = [
            self._view(
                self._view(self._shared[at : at + part.nbytes], self._types[part.dtype]), part.shape
            )
            for at, part in zip(self.layout.offsets(call), parts, strict=True)
        ]
        count = len(self.layout.inputs)
        return views[:count], views[count:]

    def fresh(self, call: int) -> tuple[Any, ...]:
        """A call's arguments in storage of their own."""
        tensors = iter(self.views(call)[0])
        given = []
        for argument in self._arguments:
            if argument.is_tensor:
                source = next(tensors)
                target = self._empty(source.shape, dtype=source.dtype, device=self.device)
                given.append(self._copy(target, source))
            else:
                given.append(argument.value)
        return tuple(given)

    def empties(self) -> tuple[Torch, ...]:
        """Results as they should be, in storage of their own."""
        return tuple(
            self._empty(part.shape, dtype=self._types[part.dtype], device=self.device).fill_(1)
            for part in self.layout.outputs
        )

    def touch(self, given: tuple[Any, ...]) -> None:
        """Bring inputs into the caches: a byte of each line."""
        for each in given:
            if type(each) is self._Tensor and each.numel():
                flat = self._view(each, -1)
                self._sum(self._view(flat, self._uint8)[:_TOUCHED:_LINE])

    def results(self, result: Any) -> tuple[Torch, ...]:
        """Results as a tuple of plain tensors of the right kind.

        Raises:
            RefusedError: they are something else.
            LeftOutError: the candidate does not compute this workload.
        """
        if result is NotImplemented:
            raise LeftOutError
        tensors = tuple(result) if type(result) in (tuple, list) else (result,)
        if len(tensors) != len(self.layout.outputs):
            raise RefusedError(f"{len(tensors)} results, expected {len(self.layout.outputs)}")
        for each, part in zip(tensors, self.layout.outputs, strict=True):
            if type(each) is not self._Tensor:
                raise RefusedError(f"the result is a {type(each).__name__}, not a plain tensor")
            if each.layout is not self._strided or each.device.type != self.device:
                raise RefusedError(f"the result is {each.layout} on {each.device}")
            if (each.dtype, tuple(each.shape)) != (self._types[part.dtype], part.shape):
                raise RefusedError(
                    f"the result is {each.dtype} {list(each.shape)}, "
                    f"expected {part.dtype} {list(part.shape)}"
                )
        return tensors

    def refuse_aliases(self, given: tuple[Any, ...], results: Any, kept: dict[int, int]) -> None:
        """Refuse results in the storage of an input or of an earlier call's result."""
        theirs = {
            self._storage(each).data_ptr()
            for place, each in enumerate(given)
            if type(each) is self._Tensor and each.numel() and place not in self.inplace
        }
        for each in results:
            at = self._storage(each).data_ptr()
            if not each.numel():
                continue
            if at in theirs:
                raise RefusedError("the result lies in an input's storage")
            if at in kept and not self.inplace:
                raise RefusedError(f"the result lies in the storage of call {kept[at]}'s result")

    def take(self, call: int, results: tuple[Torch, ...]) -> None:
        """Copy the results of a call to the judge, as they are now."""
        if not results:
            return
        for target, source in zip(self.views(call)[1], results, strict=True):
            self._copy(target, source)

    def take_all(self, first: int, results_of: list[tuple[Torch, ...]]) -> None:
        """Copy the results of calls in a row to the judge at once, before a thread adds to them."""
        if len(results_of) == 1:
            self.take(first, results_of[0])
            return
        targets = [
            t for call, some in enumerate(results_of, first) if some for t in self.views(call)[1]
        ]
        if targets:
            self._copy_each(targets, [each for results in results_of for each in results])

    def give_back(self, given: list[tuple[Any, ...]]) -> None:
        """Copy the inputs of all calls to the judge, as they are now."""
        plain = [each for inputs in given for each in inputs if type(each) is self._Tensor]
        if plain:
            targets = [each for call in range(len(given)) for each in self.views(call)[0]]
            self._copy_each(targets, plain)

    def _copy_each(self, targets: list[Torch], sources: list[Torch]) -> None:
        self._copy_all(self._as_signed(targets), self._as_signed(sources))

    def _as_signed(self, tensors: list[Torch]) -> list[Torch]:
        kinds = self._signed
        return [self._view(e, kinds[e.dtype]) if e.dtype in kinds else e for e in tensors]

    def pointers(self, results: tuple[Torch, ...]) -> list[int]:
        """Addresses of the results' storage."""
        return [self._storage(each).data_ptr() for each in results]


class Turn:
    """Calls of a candidate with inputs that were prepared."""

    def __init__(self, engine: Engine, candidate: Callee) -> None:
        self._engine, self._candidate = engine, candidate
        self._call: Callable[..., Any] = nothing
        self._trusted = candidate.trusted
        self._given: list[tuple[Any, ...]] = []
        self._spare: list[tuple[Torch, ...]] = []
        self._graphs: dict[Mode, Graph] = {}

    def workload(self, work: BeginWorkload) -> None:
        """Go on with this workload."""
        self._given, self._spare, self._graphs = [], [], {}
        self._call = nothing
        self._engine.collector.begin()
        self._engine.begin(work)
        self._call = self._candidate.of(work)

    def prepare(self, calls: int) -> None:
        """Lay out the inputs of so many calls, each in fresh storage."""
        self._given, self._spare = [], []
        self._given = [self._engine.fresh(call) for call in range(calls)]
        self._spare = [self._engine.empties() for _ in range(calls)] if self._trusted else []
        self._engine.timer.settle()

    def measure(self, mode: Mode) -> Times:
        """Make the calls, time them, and copy each result to the judge at once."""
        self._engine.settle_in(mode)
        try:
            return self._times(mode)
        finally:
            self._engine.move_on()

    def _times(self, mode: Mode) -> Times:
        engine, times = self._engine, []
        measure = self._timing(mode)
        kept: dict[int, int] = {}
        alive: list[Any] = []
        step = engine_workload.in_a_row(mode, len(self._given))
        for first in range(0, len(self._given), step):
            given = self._given[first : first + step]
            if mode in ("hot", "launch"):
                for each in given:
                    self.touch(each)
            results, spent = measure(given)
            taken = [self.taken(number, result) for number, result in enumerate(results, first)]
            engine.take_all(first, taken)
            for number, returned in enumerate(taken, first):
                if mode not in engine_workload.GRAPHS:
                    engine.refuse_aliases(self._given[number], returned, kept)
                kept.update(dict.fromkeys(engine.pointers(returned), number))
                alive.append(returned)
            times.append(spent / len(given))
        engine.timer.settle()
        return Times(times=tuple(times))

    def touch(self, given: tuple[Any, ...]) -> None:
        """Bring what a call reads into the caches."""
        self._engine.touch((*given, *self._engine.held))

    def taken(self, number: int, result: Any) -> tuple[Torch, ...]:
        """The results of a call as plain tensors.

        Raises:
            RefusedError: it is something else.
        """
        # The engine's own candidates return nothing, but their copies cost what others' cost.
        return self._engine.results(self._spare[number] if self._trusted else result)

    def results(self) -> None:
        """Copy results that were not copied at once; there are none."""

    def _timing(self, mode: Mode) -> Callable[[list[tuple[Any, ...]]], tuple[list[Any], float]]:
        """The function that times calls in a row."""
        timer, call = self._engine.timer, self._call
        if mode == "launch":
            return lambda given: timer.time_launch(call, given)
        if mode in engine_workload.GRAPHS:
            graph = self._captured(mode)
            return lambda given: graph.time(timer, given, cold=mode == "graph")

        def single(given: list[tuple[Any, ...]]) -> tuple[list[Any], float]:
            result, spent = timer.time(call, given[0], cold=mode == "cold")
            return [result], spent

        return single

    def _captured(self, mode: Mode) -> Graph:
        """The mode's graph of a workload, captured once: its memory is then as old as any other."""
        calls, graph = engine_workload.in_a_row(mode, len(self._given)), self._graphs.get(mode)
        if graph is None or graph.calls < calls:
            inputs = [self._engine.fresh(number) for number in range(calls)]
            graph = Graph(self._candidate.apart(self._call, calls), inputs)
            self._graphs[mode] = graph
        return graph

    def release(self) -> None:
        """Keep no more memory than the candidate itself does."""
        self._given, self._spare = [], []
        self._engine.release()

    def inputs(self) -> None:
        """Copy to the judge what the calls left of their inputs."""
        self._engine.give_back(self._given)
        self._given = []
        self._engine.collector.clear()


def _obey(turn: Turn, request: Request) -> Reply:
    """Do a request of the judge."""
    match request:
        case Measure(mode=mode):
            return turn.measure(mode)
        case BeginWorkload():
            turn.workload(request)
        case Prepare(calls=calls):
            turn.prepare(calls)
        case CollectResults():
            turn.results()
        case CollectInputs():
            turn.inputs()
        case ReleaseMemory():
            turn.release()
    return Acknowledged()


def _reply(turn: Turn, request: Request) -> Reply:
    """The reply to a request."""
    try:
        return _obey(turn, request)
    except LeftOutError:
        return Skipped(why="it does not compute this workload", in_all_modes=True)
    except UncapturableError as error:
        return Skipped(why=str(error)[:500])
    except RefusedError as error:
        return Refused(why=str(error))
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
        return Refused(why=f"raised {type(error).__name__}: {error}"[:_LONGEST])


def serve(argv: list[str], open_turn: Callable[[WorkerStart, Engine], Turn]) -> None:
    """Load a candidate, then do the judge's requests until it closes the pipe.

    Args:
        argv: a ``WorkerStart``, and the numbers of the pipes' ends.
    """
    if sys.platform == "linux":
        # A judge that is killed cannot wake processes that it has stopped: they would stay for good.
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    garbage.collect_rarely()
    start = messages.decode(argv[0], [WorkerStart])
    judge = JudgePipe(argv[1], argv[2], messages.REQUESTS)
    try:
        turn = open_turn(start, Engine(start))
    except Exception as error:  # noqa: BLE001 - as above
        why = f"could not be loaded: {type(error).__name__}: {error}"
        judge.send(Refused(why=why[:_LONGEST]))
        return
    judge.send(Acknowledged())
    for request in judge:
        judge.send(_reply(turn, request))


if __name__ == "__main__":
    serve(sys.argv[1:], lambda start, engine: Turn(engine, Contender(start)))

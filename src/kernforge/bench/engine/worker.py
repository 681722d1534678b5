# SPDX-License-Identifier: Apache-2.0
"""The process that runs one candidate: ``python -m kernforge.bench.engine.worker SPEC READ WRITE``.

It is told what to do a line at a time and believed in little: the judge holds its clock against its
own, and looks at the results itself. What it needs of torch it takes hold of before the candidate's
file is loaded, so that a candidate that patches torch patches only itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any, Protocol

from kernforge.bench.engine import exchange
from kernforge.bench.engine import timer as engine_timer
from kernforge.bench.engine import workload as engine_workload
from kernforge.bench.engine.contender import Contender, RefusedError
from kernforge.bench.engine.garbage_pause import Garbage
from kernforge.bench.engine.graph_timer import Graph, UncapturableError
from kernforge.bench.engine.workload import Layout, Tensor
from kernforge.system import garbage

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor as Torch

    from kernforge.bench.engine.workload import Mode

_TOUCHED = 32 << 20
_LINE = 64
_PDEATHSIG = 1  # prctl(2)


class Engine:
    """Torch's own functions, and what a call may give back.

    Args:
        spec: device and exchange.
    """

    def __init__(self, spec: dict[str, Any]) -> None:
        import torch  # noqa: PLC0415

        self.device = spec["device"]
        self.timer = engine_timer.open_timer(self.device)
        self._shared = exchange.enter(spec["exchange"])
        self._types = {name: getattr(torch, name) for name in engine_workload.SIZES}
        self._Tensor, self._strided, self._empty = torch.Tensor, torch.strided, torch.empty
        self._copy, self._sum, self._storage = (
            torch.Tensor.copy_,
            torch.Tensor.sum,
            torch.Tensor.untyped_storage,
        )
        self._copy_all = torch._foreach_copy_
        self._view, self._uint8 = torch.Tensor.view, torch.uint8
        self._give_back = torch.cuda.empty_cache
        self.garbage = Garbage()
        self._place, self._anywhere = os.sched_setaffinity, os.sched_getaffinity(0)
        self._cpu: int | None = spec.get("cpu")

    def settle_in(self, mode: Mode) -> None:
        """No collector works from now on; by the host's clock, everyone calls on one processor."""
        self.garbage.stop()
        if self._cpu is not None and mode == "launch":
            self._place(0, {self._cpu})

    def move_on(self) -> None:
        """Let this thread go where it likes again, and the collector work."""
        if self._cpu is not None:
            self._place(0, self._anywhere)
        self.garbage.go_on()

    def begin(self, work: dict[str, Any]) -> None:
        """Take a workload up: its layout, arguments and outputs' places that may alias."""
        self.inplace = frozenset(work["inplace"])
        self.layout = Layout(
            inputs=tuple(_tensor(each) for each in work["inputs"]),
            outputs=tuple(_tensor(each) for each in work["outputs"]),
        )
        self._arguments = work["arguments"]
        self.held: tuple[Torch, ...] = ()
        self.release()
        self.held = tuple(
            self._empty(size, dtype=self._uint8, device=self.device) for size in work["held"]
        )

    def release(self) -> None:
        """Give unused memory of the GPU back, which others need."""
        if self.device == "cuda":
            self._give_back()

    def views(self, call: int) -> tuple[list[Torch], list[Torch]]:
        """A call's inputs and results in the exchange."""
        parts = (*self.layout.inputs, *self.layout.outputs)
        found = [
            self._view(
                self._view(self._shared[at : at + part.nbytes], self._types[part.dtype]), part.shape
            )
            for at, part in zip(self.layout.offsets(call), parts, strict=True)
        ]
        count = len(self.layout.inputs)
        return found[:count], found[count:]

    def fresh(self, call: int) -> tuple[Any, ...]:
        """A call's arguments in storage of their own."""
        tensors = iter(self.views(call)[0])
        given = []
        for argument in self._arguments:
            if "tensor" in argument:
                source = next(tensors)
                target = self._empty(source.shape, dtype=source.dtype, device=self.device)
                given.append(self._copy(target, source))
            else:
                given.append(argument["value"])
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
            RefusedError: they are none.
        """
        found = tuple(result) if type(result) in (tuple, list) else (result,)
        if len(found) != len(self.layout.outputs):
            raise RefusedError(f"{len(found)} results where {len(self.layout.outputs)} are wanted")
        for each, part in zip(found, self.layout.outputs, strict=True):
            if type(each) is not self._Tensor:
                raise RefusedError(f"the result is a {type(each).__name__} and no plain tensor")
            if each.layout is not self._strided or each.device.type != self.device:
                raise RefusedError(f"the result is {each.layout} on {each.device}")
            if (each.dtype, tuple(each.shape)) != (self._types[part.dtype], part.shape):
                raise RefusedError(
                    f"the result is {each.dtype} {list(each.shape)}, "
                    f"wanted {part.dtype} {list(part.shape)}"
                )
        return found

    def refuse_aliases(self, given: tuple[Any, ...], found: Any, kept: dict[int, int]) -> None:
        """Refuse results in the storage of an input or of an earlier call's result."""
        theirs = {
            self._storage(each).data_ptr()
            for place, each in enumerate(given)
            if type(each) is self._Tensor and each.numel() and place not in self.inplace
        }
        for each in found:
            at = self._storage(each).data_ptr()
            if not each.numel():
                continue
            if at in theirs:
                raise RefusedError("the result lies in an input's storage")
            if at in kept and not self.inplace:
                raise RefusedError(f"the result lies in the storage of call {kept[at]}'s result")

    def take(self, call: int, found: tuple[Torch, ...]) -> None:
        """Copy results to the judge, as they are now."""
        if not found:
            return
        for target, source in zip(self.views(call)[1], found, strict=True):
            self._copy(target, source)

    def take_all(self, first: int, found: list[tuple[Torch, ...]]) -> None:
        """Copy the results of calls in a row to the judge at once, before a thread adds to them."""
        if len(found) == 1:
            self.take(first, found[0])
            return
        targets = [each for n, one in enumerate(found, first) if one for each in self.views(n)[1]]
        if targets:
            self._copy_all(targets, [each for one in found for each in one])

    def give_back(self, given: list[tuple[Any, ...]]) -> None:
        """Copy the inputs of all calls to the judge, as they are now."""
        plain = [each for one in given for each in one if type(each) is self._Tensor]
        if plain:
            targets = [each for call in range(len(given)) for each in self.views(call)[0]]
            self._copy_all(targets, plain)

    def pointers(self, found: tuple[Torch, ...]) -> list[int]:
        """Where results lie."""
        return [self._storage(each).data_ptr() for each in found]


class Callee(Protocol):
    """What gives a turn the function to time."""

    @property
    def trusted(self) -> bool:
        """Whether it is one of the engine's own, whose results are not looked at."""
        ...

    def none(self, *given: Any) -> None:
        """What is called when there is no workload."""

    def of(self, work: dict[str, Any]) -> Callable[..., Any]:
        """The function to time on a workload."""
        ...

    def apart(self, call: Callable[..., Any], calls: int) -> Callable[..., Any]:
        """That function for so many calls in a row that shall not find each other's data cached."""
        ...


class Turn:
    """Calls of a candidate with inputs that are ready.

    Args:
        engine: the process's.
        candidate: the candidate.
    """

    def __init__(self, engine: Engine, candidate: Callee) -> None:
        self._engine, self._candidate = engine, candidate
        self._call: Callable[..., Any] = candidate.none
        self._trusted = candidate.trusted
        self._given: list[tuple[Any, ...]] = []
        self._spare: list[tuple[Torch, ...]] = []
        self._graph: Graph | None = None

    def workload(self, work: dict[str, Any]) -> dict[str, Any]:
        """Go on with this workload."""
        self._given, self._spare, self._graph = [], [], None
        self._call = self._candidate.none
        self._engine.garbage.begin()
        self._engine.begin(work)
        self._call = self._candidate.of(work)
        return {"ok": True}

    def prepare(self, calls: int) -> dict[str, Any]:
        """Lay out the inputs of so many calls, each in fresh storage."""
        self._given, self._spare = [], []
        self._given = [self._engine.fresh(call) for call in range(calls)]
        self._spare = [self._engine.empties() for _ in range(calls)] if self._trusted else []
        self._engine.timer.settle()
        return {"ok": True}

    def go(self, mode: Mode) -> dict[str, Any]:
        """Make the calls, time them, and hand each result over at once."""
        self._engine.settle_in(mode)
        try:
            return self._go(mode)
        finally:
            self._engine.move_on()

    def _go(self, mode: Mode) -> dict[str, Any]:
        engine, times = self._engine, []
        measure = self._measure(mode)
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
            for number, found in enumerate(taken, first):
                if mode != "graph":
                    engine.refuse_aliases(self._given[number], found, kept)
                kept.update(dict.fromkeys(engine.pointers(found), number))
                alive.append(found)
            times.append(spent / len(given))
        engine.timer.settle()
        return {"times": times}

    def touch(self, given: tuple[Any, ...]) -> None:
        """Bring what a call reads into the caches."""
        self._engine.touch((*given, *self._engine.held))

    def taken(self, number: int, result: Any) -> tuple[Torch, ...]:
        """What a call gave, as plain tensors.

        Raises:
            RefusedError: it is something else.
        """
        # The engine's own give nothing back, but cost what others cost.
        return self._engine.results(self._spare[number] if self._trusted else result)

    def results(self) -> dict[str, Any]:
        """Hand over results that were not handed over at once; there are none."""
        return {"ok": True}

    def _measure(self, mode: Mode) -> Callable[[list[tuple[Any, ...]]], tuple[list[Any], float]]:
        """What times calls in a row."""
        timer, call = self._engine.timer, self._call
        if mode == "launch":
            return lambda given: timer.time_launch(call, given)
        if mode == "graph":
            graph = self._captured()
            return lambda given: graph.time(timer, given)

        def one(given: list[tuple[Any, ...]]) -> tuple[list[Any], float]:
            result, spent = timer.time(call, given[0], cold=mode == "cold")
            return [result], spent

        return one

    def _captured(self) -> Graph:
        """The workload's graph, captured once: its memory is then no newer than any other."""
        calls = engine_workload.in_a_row("graph", len(self._given))
        if self._graph is None or self._graph.calls < calls:
            inputs = [self._engine.fresh(number) for number in range(calls)]
            self._graph = Graph(self._candidate.apart(self._call, calls), inputs)
        return self._graph

    def leave(self) -> dict[str, Any]:
        """Keep no more memory than the candidate itself does."""
        self._given, self._spare = [], []
        self._engine.release()
        return {"ok": True}

    def inputs(self) -> dict[str, Any]:
        """Show the judge what the calls left of their inputs."""
        self._engine.give_back(self._given)
        self._given = []
        self._engine.garbage.clear()
        return {"ok": True}


def _tensor(spec: dict[str, Any]) -> Tensor:
    return Tensor(shape=tuple(spec["shape"]), dtype=spec["dtype"])


def _answer(turn: Turn, wanted: dict[str, Any]) -> dict[str, Any]:
    try:
        if wanted["do"] == "workload":
            return turn.workload(wanted["work"])
        if wanted["do"] == "leave":
            return turn.leave()
        if wanted["do"] == "prepare":
            return turn.prepare(wanted["calls"])
        if wanted["do"] == "results":
            return turn.results()
        return turn.go(wanted["mode"]) if wanted["do"] == "go" else turn.inputs()
    except UncapturableError as error:
        return {"skipped": str(error)[:500]}
    except RefusedError as error:
        return {"refused": str(error)}
    except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
        return {"refused": f"raised {type(error).__name__}: {error}"[:2000]}


def serve(argv: list[str], open_turn: Callable[[dict[str, Any], Engine], Turn]) -> None:
    """Load a candidate, then do what the judge says until it hangs up.

    Args:
        argv: what the judge says of the candidate, and the ends of the pipes.
        open_turn: loads it.
    """
    if sys.platform == "linux":
        # A judge that is killed cannot wake who it has stopped: they would stay for good.
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    garbage.work_seldom()
    spec = json.loads(argv[0])
    commands, answers = os.fdopen(int(argv[1])), os.fdopen(int(argv[2]), "w")
    dumps, loads = json.dumps, json.loads

    def say(document: dict[str, Any]) -> None:
        answers.write(dumps(document) + "\n")
        answers.flush()

    try:
        turn = open_turn(spec, Engine(spec))
    except Exception as error:  # noqa: BLE001 - as above
        say({"refused": f"could not be loaded: {type(error).__name__}: {error}"[:2000]})
        return
    say({"ready": True})
    for line in commands:
        say(_answer(turn, loads(line)))


if __name__ == "__main__":
    serve(sys.argv[1:], lambda spec, engine: Turn(engine, Contender(spec)))

# SPDX-License-Identifier: Apache-2.0
"""The process that runs one benchmark class: ``python -m kernforge.bench.hub.worker SPEC READ WRITE``.

It is a worker whose inputs are seeds: before a turn's clock starts, each call gets an instance of
the class of its own, set up from its seed. What is timed is ``benchmark_<workload>`` of it alone.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import worker
from kernforge.bench.engine.contender import Callee, load_candidate
from kernforge.bench.engine.worker import Engine, Turn
from kernforge.bench.hub import scripts

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor as Torch

    from kernforge.bench.engine.messages import BeginWorkload, WorkerStart


class HubContender(Callee):
    """A workload of a script."""

    def __init__(self, start: WorkerStart) -> None:
        candidate = start.candidate
        self._entry, self._reference = candidate.entry, candidate.kind == "hub reference"
        self._script = scripts.Script(
            Path(candidate.file),
            Path(candidate.repo),
            lambda: load_candidate(start),
            start.device,
        )
        if not self._reference:
            self._script.kernel.now()
        self.late, self._after = False, candidate.after

    def of(self, work: BeginWorkload) -> Callable[..., Any]:
        """What is timed."""
        self.late = work.late and not self._reference
        return _make_the_call

    def make(self, seed: int) -> _Call:
        """One call, ready to be made."""
        instance, method = self._script.make(self._entry, seed)
        if not self._reference:
            return _Call(instance, getattr(instance, method), None)
        if self._after:
            getattr(instance, method)()
        return _Call(instance, None, self._script.reference(instance, method))

    def assembled(self, call: _Call) -> Any:
        """The result of a workload whose ``verify_`` puts it together."""
        self._script.reference(call.instance, call.run.__name__)()
        return call.instance.out


class _Call:
    """An instance and what is called of it."""

    def __init__(self, instance: Any, workload: Any, reference: Any) -> None:
        self.instance = instance
        self.run: Any = workload or reference
        self.returns = workload is None
        self.held = tuple(scripts.held(instance))


def _make_the_call(call: _Call) -> Any:
    result = call.run()
    return result if call.returns else None


class HubTurn(Turn):
    """Calls of instances that are ready."""

    def __init__(self, engine: Engine, contender: HubContender) -> None:
        super().__init__(engine, contender)
        self._contender = contender
        self._seeds: list[tuple[Any, ...]] = []

    def prepare(self, calls: int) -> None:
        """Set up an instance for each seed; those of the turn before are gone by now."""
        super().prepare(calls)
        self._seeds = self._given
        self._given = [(self._contender.make(int(seed)),) for (seed,) in self._seeds]
        self._engine.timer.settle()

    def touch(self, given: tuple[Any, ...]) -> None:
        """Bring an instance's tensors into the caches."""
        self._engine.touch(given[0].held)

    def taken(self, number: int, result: Any) -> tuple[Torch, ...]:
        """The result of a call; nothing yet where ``verify_`` puts it together."""
        if self._contender.late or not self._engine.layout.outputs:
            return ()
        call = self._given[number][0]
        return self._engine.results(_bare(result if call.returns else call.instance.out))

    def results(self) -> None:
        """Hand over what is put together after the calls."""
        for number, (call,) in enumerate(self._given if self._contender.late else ()):
            result = self._contender.assembled(call)
            self._engine.take(number, self._engine.results(_bare(result)))
        self._engine.timer.settle()

    def inputs(self) -> None:
        """Show the judge the seeds: what a class does to its own tensors is its affair."""
        self._given = self._seeds
        super().inputs()


def _bare(result: Any) -> Any:
    """A tensor without its history: an honest workload need not switch gradients off."""
    return result.detach() if getattr(result, "requires_grad", False) else result


if __name__ == "__main__":
    worker.serve(sys.argv[1:], lambda start, engine: HubTurn(engine, HubContender(start)))

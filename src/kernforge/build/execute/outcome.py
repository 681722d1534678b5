# SPDX-License-Identifier: Apache-2.0
"""How actions and builds end, and what a build asks of those who run it and watch it."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import concurrent.futures
    from collections.abc import Callable, Collection, Mapping, Sequence
    from pathlib import Path

    from kernforge.build.execute.cost import Estimate
    from kernforge.build.plan.graph import Action
    from kernforge.system.process import Completed

# How a compiler, a driver that started one, and a shell say that the kernel killed it.
_KILLED = re.compile(
    r"died due to signal 9|Killed signal terminated|signal 9 \(|^Killed$", re.MULTILINE
)
_KILL_STATUS = (-9, 128 + 9)


class Events(Protocol):
    """Told what a build is doing."""

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """So many actions will be looked at; ``usage`` tells the memory of running ones by key."""
        ...

    def started(self, action: Action) -> None:
        """An action begins."""
        ...

    def ended(self, action: Action, done: Done) -> None:
        """An action ended."""
        ...

    def finished(self) -> None:
        """The last action ended, or the build was given up."""
        ...


class Crew(Protocol):
    """Who runs actions; see ``crew.Crew`` for the one that works here."""

    patience: float | None

    def choose(
        self,
        waiting: Sequence[Action],
        expected: Mapping[str, Estimate],
        distance: Mapping[str, float],
        alone: Collection[str],
    ) -> tuple[Action, ...]:
        """Those of the waiting actions that are to start now, the most urgent first."""
        ...

    def submit(
        self,
        action: Action,
        expected: Estimate,
        *,
        alone: bool,
        work: Callable[[Action, int], Done],
    ) -> concurrent.futures.Future[Done]:
        """Start an action; ``work`` does it in this process, with so many threads."""
        ...

    def usage(self) -> Mapping[str, int]:
        """Bytes that each running action uses now, by key, as far as is known."""
        ...

    def close(self) -> None:
        """All work is done."""
        ...

    def kill(self) -> None:
        """Stop everything at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """How an action ended.

    Attributes:
        origin: ``"ran"``, ``"store"`` or ``"shared"``, where its result came from; or ``"failed"``.
        completed: the program's end, when one ran and went well.
        failure: what went wrong.
        where: the worker that did it; empty for this machine.
    """

    origin: str
    completed: Completed | None = None
    failure: Failure | None = None
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What one action took.

    Attributes:
        title: what a person calls it.
        key: its key.
        start_s: when it was handed out, in seconds since the build began.
        wall_s: seconds from start to end.
        cpu_s: CPU seconds.
        peak_bytes: highest memory.
        where: the worker that ran it; empty for this machine.
    """

    title: str
    key: str
    start_s: float
    wall_s: float
    cpu_s: float
    peak_bytes: int
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """An action that failed.

    Attributes:
        action: which.
        returncode: the program's exit status.
        output: what it printed.
        repeat: a shell line that runs it again by hand.
    """

    action: Action
    returncode: int
    output: str
    repeat: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a build ended.

    Attributes:
        variants: directory of each variant that was built, by name.
        failures: the actions that failed.
        left_out: variants that were not built because of them.
        ran: how many actions ran.
        reused: how many results came from the store.
        shared: how many of these came from the shared store.
        cpu_s: CPU seconds of those that ran.
        wall_s: seconds from the first action to the last.
        spent: what each action that ran took, the longest first.
    """

    variants: Mapping[str, Path]
    failures: tuple[Failure, ...]
    left_out: tuple[str, ...]
    ran: int
    reused: int
    shared: int
    cpu_s: float
    wall_s: float
    spent: tuple[Spent, ...]


def out_of_memory(failure: Failure) -> bool:
    """Whether the kernel killed the program, or one that it started."""
    return failure.returncode in _KILL_STATUS or bool(_KILLED.search(failure.output))

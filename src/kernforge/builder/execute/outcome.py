# SPDX-License-Identifier: Apache-2.0
"""How actions end, and what a build needs of a pool that runs them and of a listener."""

from __future__ import annotations

import concurrent.futures
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from kernforge.builder.execute.schedule import Job
from kernforge.builder.plan.graph import Action
from kernforge.system.process import Completed

# How a compiler, a driver that started one, and a shell say that the kernel killed it.
_KILLED = re.compile(
    r"died due to signal 9|Killed signal terminated|signal 9 \(|^Killed$", re.MULTILINE
)
_KILL_STATUS = (-9, 128 + 9)

_log = logging.getLogger("kernforge")


class Events(Protocol):
    """Listens to a build; what a listener does not do itself goes to the log."""

    def note(self, text: str) -> None:
        """Something that a user should know, once a build."""
        _log.info("%s", text)

    def planned(self, actions: int, usage: Callable[[], Mapping[str, int]]) -> None:
        """The build begins.

        Args:
            actions: how many there are, those included whose results are known.
            usage: returns the bytes that each running action uses, by key.
        """
        del usage
        _log.info("%d actions", actions)

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        del key
        _log.info("%s", title)

    def ended(self, key: str, text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """An action ended.

        Args:
            text: its title and the worker that ran it, or all that is to be said of its failure.
            seconds: how long it ran; 0 when its result was known.
            peak_bytes: the highest memory of its programs.
        """
        del key, seconds, peak_bytes
        if failed:
            _log.error("%s", text)

    def finished(self) -> None:
        """The last action ended, or the build was given up."""
        _log.info("done")


class LogEvents(Events):
    """Writes a build, and the downloads for it, to the log: for a caller without a terminal."""

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """Log that a download begins."""
        size = "" if total is None else f" ({total / 1e6:.1f} MB)"
        _log.info("fetching %s%s", what, size)
        return lambda _count: None


class ActionPool(Protocol):
    """Runs actions; ``local_pool.LocalPool`` does so in this process."""

    patience: float | None

    def choose(self, waiting: Sequence[Job]) -> tuple[Job, ...]:
        """Those of the waiting actions that are to start now, the most urgent first."""
        ...

    def submit(self, job: Job, work: Callable[[Job], Done]) -> concurrent.futures.Future[Done]:
        """Start an action; ``work`` does it in this process."""
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
        start_s: when it was handed out, in seconds since the build began.
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
    """An action that failed; ``repeat`` is a shell line that runs it again by hand, or empty."""

    action: Action
    returncode: int
    output: str
    repeat: str

    def text(self, where: str = "") -> str:
        """What the program printed, what it was for, and how to see it again.

        ``where`` is the worker that ran it, empty for this machine.
        """
        on = f" on {where}" if where else ""
        lines = [
            f"{self.action.title}: exit status {self.returncode}{on}",
            f"for {', '.join(self.action.variants)}",
            self.output,
        ]
        if self.repeat:
            lines.append(f"repeat it by hand{on}:\n  {self.repeat}")
        return "\n".join(lines)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How the actions of a plan ended.

    Attributes:
        shared: how many of these came from the shared store.
        cpu_s: CPU seconds of those that ran.
        wall_s: seconds from the first action to the last.
        spent: what each action that ran took, the longest first.
    """

    failures: tuple[Failure, ...]
    ran: int
    reused: int
    shared: int
    cpu_s: float
    wall_s: float
    spent: tuple[Spent, ...]


def out_of_memory(failure: Failure) -> bool:
    """Whether the kernel killed the program, or one that it started."""
    return failure.returncode in _KILL_STATUS or bool(_KILLED.search(failure.output))

# SPDX-License-Identifier: Apache-2.0
"""Read documents one after the other, and tell what comes out of it that may not."""

from __future__ import annotations

import resource
import signal
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import seed as seeded

from kernforge.errors import KernforgeError

if TYPE_CHECKING:
    from types import FrameType

    from fuzz.kinds import Kind

HANG_S = 10
MEMORY_MB = 500


class HangError(BaseException):
    """A document took longer than ``HANG_S``; no handler for exceptions may catch it."""


@dataclass
class Outcome:
    """What became of documents of one kind.

    Attributes:
        read: documents that were accepted.
        refused: documents that were refused with one of our errors.
        failures: descriptions of what else happened, each with the first document that did it.
        slowest_s: the longest that one took.
    """

    read: int = 0
    refused: int = 0
    slowest_s: float = 0.0
    failures: dict[str, bytes] = field(default_factory=dict)


def attempt(kind: Kind, data: bytes, outcome: Outcome) -> str:
    """Read one document; returns a description of a failure, or an empty text."""
    began = time.perf_counter()
    failure = ""
    signal.setitimer(signal.ITIMER_REAL, HANG_S)
    try:
        kind.read(data)
        outcome.read += 1
    except KernforgeError as error:
        outcome.refused += 1
        failure = "" if error.message else _describe(error)
    except (Exception, HangError) as error:  # noqa: BLE001 - this is what is looked for
        failure = _describe(error)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    outcome.slowest_s = max(outcome.slowest_s, time.perf_counter() - began)
    if failure:
        outcome.failures.setdefault(failure, data)
    return failure


def _describe(error: BaseException) -> str:
    """The exception with the last line of ours that it came through."""
    ours = [f for f in traceback.extract_tb(error.__traceback__) if "kernforge/" in f.filename]
    frames = ours or traceback.extract_tb(error.__traceback__)[-1:]
    where = f"{Path(frames[-1].filename).name}:{frames[-1].name}"
    return f"{type(error).__name__} at {where}: {str(error)[:120]!r}"


def run(kind: Kind, *, examples: int, seed: int, outcome: Outcome, find: bool = False) -> None:
    """Read documents that Hypothesis draws.

    Args:
        kind: what they are.
        examples: how many.
        seed: the same seed draws the same documents.
        outcome: what is counted.
        find: whether the first failure ends it, with the smallest document that Hypothesis finds.
    """

    def test(data: bytes) -> None:
        failure = attempt(kind, data, outcome)
        assert not (find and failure), failure

    phases = (Phase.generate, Phase.shrink) if find else (Phase.generate,)
    limits = settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=phases,
        suppress_health_check=list(HealthCheck),
    )
    old = signal.signal(signal.SIGALRM, _hang)
    try:
        seeded(seed)(limits(given(kind.mutants)(test)))()
    finally:
        signal.signal(signal.SIGALRM, old)


def _hang(_number: int, _frame: FrameType | None) -> None:
    raise HangError(f"more than {HANG_S} seconds")


def limit_memory() -> None:
    """Let this process take ``MEMORY_MB`` more than now."""
    now = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    limit = now + MEMORY_MB * 10**6
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge dev`` does and tells, as data: the work that a change asks for, and a round.

A change of a source touches every test: which test calls which operator is said nowhere, and a test
that was wrongly left out would show a broken kernel as good. What failed last runs first instead. A
change of a test file alone touches that file.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from kernforge.errors import UntestedError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.binary.kernel_usage import Kernel
    from kernforge.source.diagnostics import Diagnostic
    from kernforge.testing.project_tests import Tested

_PROSE = {".md", ".rst"}
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What a change asks for.

    Attributes:
        build: whether something that is built may be another.
        tests: files of tests to run, from the project's root; None: all.
        bench: whether to measure even what is built as before.
        reason: why, for people.
    """

    build: bool = False
    tests: tuple[str, ...] | None = ()
    bench: bool = False
    reason: str = ""

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do."""
        return not self.build and self.tests == () and not self.bench


EVERYTHING = Work(build=True, tests=None, bench=True, reason="the first round")


def changed(before: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Files that came, went or have another content; paths -> digests before and now."""
    every = {**before, **now}
    return tuple(sorted(path for path in every if before.get(path) != now.get(path)))


def work(files: tuple[str, ...], *, built: bool) -> Work:
    """What changed files ask for.

    Args:
        files: from the project's root, with ``/``.
        built: whether something is built that tests can run on.
    """
    kinds = {path: _kind(path) for path in files}
    found = set(kinds.values()) - {"prose"}
    if not found:
        return Work(reason="no source, test or benchmark changed")
    named = [path for path in files if kinds[path] != "prose"]
    listed = ", ".join(named[:_SHOWN]) + (
        f" and {len(named) - _SHOWN} more" if named[_SHOWN:] else ""
    )
    if not built or "source" in found:
        return Work(
            build=True, tests=None, bench="benchmark" in found, reason=f"{listed}: all tests"
        )
    if "shared" in found:
        return Work(
            tests=None, bench="benchmark" in found, reason=f"{listed}: every test may use it"
        )
    tests = tuple(path for path in files if kinds[path] == "test")
    reason = f"{listed}: this alone" if tests else f"{listed}: measured again"
    return Work(tests=tests, bench="benchmark" in found, reason=reason)


def _kind(path: str) -> str:
    """``prose``, ``test`` (a file of tests), ``shared`` (read by tests), ``benchmark``, ``source``."""
    one = PurePosixPath(path)
    if one.suffix in _PROSE or one.name.startswith("LICENSE"):
        return "prose"
    if one.parts[0] == "benchmarks":
        return "benchmark"
    if one.parts[0] == "tests":
        is_test = one.name.startswith("test_") or one.stem.endswith("_test")
        return "test" if is_test and one.suffix == ".py" else "shared"
    return "source"


@dataclass(frozen=True, slots=True, kw_only=True)
class Complaint:
    """What a compiler said, with the lines that it means."""

    diagnostic: Diagnostic
    source: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratio:
    """A time beside that of the last good build, both measured in turns in one run.

    Attributes:
        workload: its name.
        mode: cold or hot.
        median_ns: of this build.
        low_ns: lower end of the median's 95 % interval.
        high_ns: upper end.
        before_ns: median of the last good build; None: there was none.
        ratio: this one's median over that one's.
        low: the least that the ratio can be: this one's lower end over that one's upper.
        high: the most that it can be.
        refused: why there is no time; the others are then 0 or None.
    """

    workload: str
    mode: str
    median_ns: float = 0.0
    low_ns: float = 0.0
    high_ns: float = 0.0
    before_ns: float | None = None
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    refused: str = ""


@dataclass(slots=True, kw_only=True)
class Round:
    """What came of one round; it is filled while it runs.

    Attributes:
        number: the first is 1.
        files: what had changed.
        work: what was to be done.
        seconds: by stage: build, test, bench.
        error: what kept it from building, if no compiler did; its kind, message and hint.
        complaints: of the compilers.
        output: what the failed compilers wrote, each with its title.
        variants: directories of what was built, by name.
        ran: actions that ran.
        tested: by variant.
        untested: variants that were not tested -> why.
        failing: tests of this build that failed before and were not run now.
        kernels: what device code takes.
        unread: why some device code cannot be told of.
        ratios: times.
        unmeasured: why there are no times.
        exit_code: 0, or that of the error that it is; 13 where every test was skipped.
    """

    number: int
    files: tuple[str, ...]
    work: Work
    seconds: dict[str, float] = field(default_factory=dict)
    error: Mapping[str, str] | None = None
    complaints: tuple[Complaint, ...] = ()
    output: tuple[tuple[str, str], ...] = ()
    variants: Mapping[str, Path] = field(default_factory=dict)
    ran: int = 0
    tested: tuple[Tested, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)
    failing: tuple[Mapping[str, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    unread: str = ""
    ratios: tuple[Ratio, ...] = ()
    unmeasured: str = ""
    exit_code: int = 0

    @property
    def ok(self) -> bool:
        """Whether all was built and no test failed; where every one was skipped, none did."""
        return self.exit_code in {0, UntestedError.exit_code}

    @property
    def failed(self) -> tuple[Mapping[str, str], ...]:
        """The tests that failed or broke."""
        return tuple(
            {"variant": one.variant, **test}
            for one in self.tested
            for test in one.tests
            if test["outcome"] in ("failed", "error")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Good:
    """The last build that passed its tests.

    Attributes:
        round: its number in this session; 0: it is of an earlier one.
        variants: directory of each variant, by name.
        figures: what ``dev_report.document`` said of it.
    """

    round: int
    variants: Mapping[str, Path]
    figures: Mapping[str, Any]

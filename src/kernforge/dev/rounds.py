# SPDX-License-Identifier: Apache-2.0
"""The data of ``kernforge dev``: the work that a change needs, and the result of a round.

A change of a source needs every test: it is not known which test calls which operator, and a test
that is left out wrongly would show a broken kernel as good. A change of only a test file needs only
that file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from kernforge.binary.kernel_usage import Kernel
from kernforge.errors import UntestedError
from kernforge.source.diagnostics import Diagnostic
from kernforge.system.tables import first_names
from kernforge.testing.project_tests import Tested

_PROSE = {".md", ".rst"}
_SHOWN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work that a change needs.

    Attributes:
        build: whether a built file may change.
        tests: test files to run, relative to the project; None for all.
        bench: whether to measure, even if the build is unchanged.
        reason: the reason, for people.
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
    """Files that were added, removed or changed, from digests by path before and now."""
    paths = {**before, **now}
    return tuple(sorted(path for path in paths if before.get(path) != now.get(path)))


def work(files: tuple[str, ...], *, built: bool) -> Work:
    """The work that changed files need.

    Args:
        files: paths relative to the project, with ``/``.
        built: whether there is a build that tests can run on.
    """
    kinds = {path: _kind(path) for path in files}
    found_kinds = set(kinds.values()) - {"prose"}
    if not found_kinds:
        return Work(reason="no source, test or benchmark changed")
    names = first_names((path for path in files if kinds[path] != "prose"), _SHOWN)
    bench = "benchmark" in found_kinds
    if not built or "source" in found_kinds:
        return Work(build=True, tests=None, bench=bench, reason=f"{names}: all tests")
    if "shared" in found_kinds:
        return Work(tests=None, bench=bench, reason=f"{names}: all tests may use it")
    tests = tuple(path for path in files if kinds[path] == "test")
    reason = f"{names}: only this" if tests else f"{names}: measured again"
    return Work(tests=tests, bench=bench, reason=reason)


def _kind(path: str) -> str:
    """``prose``, ``test`` (has tests), ``shared`` (read by tests), ``benchmark`` or ``source``."""
    file = PurePosixPath(path)
    if file.suffix in _PROSE or file.name.startswith("LICENSE"):
        return "prose"
    if file.parts[0] == "benchmarks":
        return "benchmark"
    if file.parts[0] == "tests":
        is_test = file.name.startswith("test_") or file.stem.endswith("_test")
        return "test" if is_test and file.suffix == ".py" else "shared"
    return "source"


@dataclass(slots=True, kw_only=True)
class Round:
    """The result of one round, filled while the round runs.

    Attributes:
        seconds: seconds of each stage: build, test, bench.
        error: class, message and hint of an error that is not a compiler's; None without one.
        diagnostics: messages of compilers, each with the lines of source that it refers to.
        output: title and output of each failed compiler.
        variants: directories of the built variants, by name.
        untested: reasons of the variants that were not tested, by name.
        failing: tests of this build that failed before and did not run in this round.
        unread: why the resources of some device code cannot be read; empty if all were read.
        times: of the short benchmark, as ``bench.times`` gives them.
        unmeasured: why there are no times; empty if there are.
        exit_code: 0, or the exit code of the error; 13 if every test was skipped.
    """

    number: int
    files: tuple[str, ...]
    work: Work
    seconds: dict[str, float] = field(default_factory=dict)
    error: Mapping[str, str] | None = None
    diagnostics: tuple[tuple[Diagnostic, tuple[str, ...]], ...] = ()
    output: tuple[tuple[str, str], ...] = ()
    variants: Mapping[str, Path] = field(default_factory=dict)
    ran: int = 0
    tested: tuple[Tested, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)
    failing: tuple[Mapping[str, str], ...] = ()
    kernels: tuple[Kernel, ...] = ()
    unread: str = ""
    times: tuple[Mapping[str, Any], ...] = ()
    unmeasured: str = ""
    exit_code: int = 0

    @property
    def ok(self) -> bool:
        """Whether everything was built and no test failed; skipped tests do not count as failed."""
        return self.exit_code in {0, UntestedError.exit_code}

    @property
    def failed(self) -> tuple[Mapping[str, str], ...]:
        """The tests that failed or had an error."""
        return tuple(
            {"variant": tested.variant, **test}
            for tested in self.tested
            for test in tested.tests
            if test["outcome"] in ("failed", "error")
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GoodBuild:
    """The last build that passed its tests.

    Attributes:
        round: number of its round in this session; 0 if it is of an earlier session.
    """

    round: int
    variants: Mapping[str, Path]

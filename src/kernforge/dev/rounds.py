# SPDX-License-Identifier: Apache-2.0
"""Rounds of ``kernforge dev``: the work that a change needs, the result, and the events.

A change of a source needs every test: it is not known which test calls which operator, and a test
that is left out wrongly would show a broken kernel as good. A change of only a test file needs only
that file, where the build passed all the others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from kernforge.binary.kernel_usage import Kernel
from kernforge.errors import UntestedError
from kernforge.source.diagnostics import Diagnostic
from kernforge.system.process import kill_all
from kernforge.system.progress import Progress
from kernforge.system.tables import first_names
from kernforge.testing.project_tests import Tested

_PROSE = {".md", ".rst"}
_SHOWN = 3
_SLEEP_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The work that a change needs.

    Attributes:
        build: whether a built file may change.
        tests: test files to run, relative to the project; None for all.
        bench: whether to measure, even if the build is unchanged.
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


def work(files: tuple[str, ...], *, built: bool, passed: bool) -> Work:
    """The work that changed files need.

    Args:
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
    if "shared" in found_kinds or not passed:
        return Work(tests=None, bench=bench, reason=f"{names}: all tests")
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
        uncompiled: sources that no variant of the round compiles, by backend.
        untested: reasons of the variants that were not tested, by name.
        times: of the short benchmark, as ``bench.measure`` gives them.
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
    uncompiled: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    ran: int = 0
    tested: tuple[Tested, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)
    kernels: tuple[Kernel, ...] = ()
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


class StoppedError(Exception):
    """A round was ended by another thread."""


class RoundEvents(Progress):
    """The events of a round and its build, which end the round if another thread asks for that.

    To end it, all its programs are killed, and its next event raises ``StoppedError``; the store is
    consistent at any moment.

    Args:
        notify: called with ``compiling``, ``testing``, ``measuring`` or ``fetching`` and a text.

    Attributes:
        over: whether the round has ended; set by the thread that runs it.
    """

    def __init__(self, notify: Callable[[str, str], None]) -> None:
        self._notify = notify
        self._running: dict[str, str] = {}
        self._stopped = self.over = False

    def check(self) -> None:
        """Raise ``StoppedError`` if the round must end."""
        if self._stopped:
            raise StoppedError

    def end(self) -> None:
        """End the round, and wait for that."""
        self._stopped = True
        # More than once: the round may start another program after the first call.
        while not self.over:
            kill_all()
            time.sleep(_SLEEP_S)

    def state(self, state: str, text: str = "") -> None:
        """A stage begins."""
        self.check()
        self._notify(state, text)

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:
        """A download begins; the returned function is called for each part of it."""
        size = f" ({total / 1e6:.0f} MB)" if total else ""
        self._notify("fetching", f"{what}{size}")
        return lambda _count: self.check()

    def note(self, text: str) -> None:
        """A note for the user."""
        self._notify("compiling", text)

    def planned(self, actions: int) -> None:
        """A build begins."""
        del actions
        self.check()

    def started(self, key: str, title: str) -> None:
        """An action begins."""
        self.check()
        self._running[key] = title
        self._notify("compiling", "; ".join(self._running.values()))

    def ended(self, key: str, text: str, *, seconds: float, peak_bytes: int, failed: bool) -> None:
        """An action ended."""
        del text, seconds, peak_bytes, failed
        self._running.pop(key, None)
        self._notify("compiling", "; ".join(self._running.values()))

    def finished(self) -> None:
        """A build ended."""
        self._running.clear()

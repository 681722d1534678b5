# SPDX-License-Identifier: Apache-2.0
"""One round of ``kernforge dev``: build, test, read the machine code, measure.

The last good build is one directory, replaced as a whole when another has passed its tests.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from kernforge.build import api as build_api
from kernforge.dev import bench as dev_bench
from kernforge.dev import build as dev_build
from kernforge.dev import report
from kernforge.dev.control import StoppedError
from kernforge.dev.rounds import Complaint, Good, Round
from kernforge.errors import BuildError, CheckError, KernforgeError, UntestedError, UsageError
from kernforge.jit.device.units import DeviceSession
from kernforge.project.api import read_project
from kernforge.source import diagnostics
from kernforge.system import digest, files, machine
from kernforge.system.process import Command, run
from kernforge.testing import project_tests
from kernforge.toolchain.local_parts import NO_LOCAL_PARTS

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from kernforge.binary import kernel_usage
    from kernforge.build.execute.outcome import Failure
    from kernforge.build.execute.sandbox import Mode
    from kernforge.dev.control import RoundEvents, Stop
    from kernforge.dev.rounds import Work
    from kernforge.dev.warm_pytest import Spare
    from kernforge.toolchain.local_parts import LocalPartsOptions

_FIGURES = "figures.json"
_BENCH_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """What a session is asked for.

    Attributes:
        root: the project.
        place: directory of the session's project, for builds and figures.
        variants: names or patterns; the best for this process when empty.
        arch: compute capabilities to compile for; this machine's GPU when empty.
        local_parts: what the user provides to the toolchain.
        sandbox: how actions are kept to their inputs.
        jobs: threads of all compilers together.
        test: whether tests are run.
        cold: whether pytest starts from nothing in each round.
        bench: whether it is measured.
        pytest: arguments for pytest.
        workloads: to measure; the first one when empty.
    """

    root: Path
    place: Path
    variants: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    local_parts: LocalPartsOptions = NO_LOCAL_PARTS
    sandbox: Mode = "auto"
    jobs: int = field(default_factory=machine.cores)
    test: bool = True
    cold: bool = False
    bench: bool = True
    pytest: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


class Session:
    """A project that is worked on: what is built of it, and the last good build.

    Args:
        options: what the session is asked for.
        scratch: an empty directory for what is not good yet.
        spare: runs tests.
    """

    def __init__(self, options: DevOptions, scratch: Path, spare: Spare) -> None:
        self._options, self._scratch, self._spare = options, scratch, spare
        self._kept: dev_build.Kept = {}
        self._device = DeviceSession()
        self._current: Mapping[str, Path] = {}
        self._identity = ""
        self._cuda: frozenset[str] = frozenset()
        self._kernels: tuple[kernel_usage.Kernel, ...] = ()
        self._unread = ""
        # Of what is built now: whether all tests ran, which failed last, whether it was measured.
        self._complete = self._measured = False
        self._failing: dict[tuple[str, str], Mapping[str, str]] = {}
        self.good = _stored(options.place / "good")

    @property
    def built(self) -> bool:
        """Whether something is built that tests can run on."""
        return bool(self._current)

    def run(
        self, number: int, changed: tuple[str, ...], work: Work, events: RoundEvents, stop: Stop
    ) -> Round:
        """Do a round's work.

        Args:
            number: the round's.
            changed: files that changed.
            work: what they ask for.
            events: listens.
            stop: may end it.

        Raises:
            StoppedError: the round was ended.
        """
        one = Round(number=number, files=changed, work=work)
        try:
            self._stages(one, events, stop)
        except StoppedError:
            raise
        except Exception as error:
            stop.check()  # what was killed fails in ways of its own
            if not isinstance(error, KernforgeError):
                raise
            one.error = {
                "error": type(error).__name__,
                "message": error.message,
                "hint": error.hint,
            }
            one.exit_code = error.exit_code
        stop.check()
        if one.ok and self._current and self._passed:
            self._keep(one)
        return one

    @property
    def _passed(self) -> bool:
        return not self._options.test or (self._complete and not self._failing)

    def prepare(self) -> None:
        """Get ready for a round while there is none."""
        if self._options.test and not self._options.cold:
            self._spare.prepare()

    def _stages(self, one: Round, events: RoundEvents, stop: Stop) -> None:
        if one.work.tests != ():
            self.prepare()
        if one.work.build:
            with _timed(one, "build"):
                self._build(one, events, stop)
        stop.check()
        one.variants, one.kernels, one.unread = self._current, self._kernels, self._unread
        if one.exit_code or not self._current:
            return
        if one.work.tests != () and self._options.test:
            with _timed(one, "test"):
                self._test(one, events, stop)
        if one.ok and self._passed and (one.work.bench or not self._measured):
            with _timed(one, "bench"):
                self._bench(one, events, stop)

    # -- building --------------------------------------------------------------------------

    def _build(self, one: Round, events: RoundEvents, stop: Stop) -> None:
        events.state("compiling")
        project = read_project(self._options.root)
        workspace = dev_build.open_workspace(project, events, self._options.local_parts, self._kept)
        request = dev_build.request(workspace, self._options, events, self._device)
        planned = build_api.plan_project(workspace, request)
        links = [artifact.extension or "" for artifact in planned.plan.artifacts]
        identity = digest.key("dev", sources=planned.plan.sources_id, links=links)
        if self._current and identity == self._identity:
            return
        request = replace(request, out=self._scratch / identity[:16])
        stop.check()
        with workspace.store.lease():
            result = build_api.build_project(workspace, request, planned)
            stop.check()
            one.ran = result.outcome.ran
            if result.outcome.failures:
                files.remove_tree(self._scratch / identity[:16])
                self._tell_failures(one, result.outcome.failures)
                return
            kernels, self._unread = dev_build.kernels(result.plan, workspace.store)
        for old in {path.parent for path in self._current.values()}:
            if old.is_relative_to(self._scratch):
                files.remove_tree(old)
        self._current, self._identity, self._kernels = dict(result.variants), identity, kernels
        self._cuda = frozenset(target.name for target in request.targets if target.cuda)
        self._complete = self._measured = False
        self._failing = {}

    def _tell_failures(self, one: Round, failures: Sequence[Failure]) -> None:
        root = self._options.root

        def read(name: str) -> str | None:
            path = root / name
            inside = path.resolve().is_relative_to(root.resolve())
            return path.read_text(errors="replace") if inside and path.is_file() else None

        said = [d for failure in failures for d in diagnostics.parse(failure.output)]
        one.complaints = tuple(
            Complaint(diagnostic=each, source=diagnostics.excerpt(each, read))
            for each in diagnostics.errors(tuple(dict.fromkeys(said)))
        )
        one.output = tuple((failure.action.title, failure.output) for failure in failures)
        one.exit_code = BuildError.exit_code

    # -- testing ---------------------------------------------------------------------------

    def _test(self, one: Round, events: RoundEvents, stop: Stop) -> None:
        root, options = self._options.root, self._options
        there = [path for path in one.work.tests or () if (root / path).is_file()]
        if one.work.tests is not None and not there:
            one.untested = dict.fromkeys(self._current, "the changed files of tests are gone")
            return
        untested, told = {}, []
        fit = project_tests.fitting(tuple(self._current))
        for name, path in self._current.items():
            stop.check()
            if name not in fit:
                untested[name] = "no GPU here" if name in self._cuda else "not for this machine"
                continue
            events.state("testing", ", ".join(there) or name)
            tested = project_tests.run_variant(
                root,
                path,
                options.pytest,
                only=there,
                cache=options.place / "pytest",
                runner=self._spare.run,
            )
            stop.check()
            told.append(tested)
        idle = {each.variant: f"every test was skipped: {each.idle}" for each in told if each.idle}
        one.tested, one.untested = tuple(told), untested | idle
        self._remember(one, there)
        if not all(each.ok for each in told):
            one.exit_code = CheckError.exit_code
        elif idle:
            one.exit_code = UntestedError.exit_code
            self._complete = self._complete and one.work.tests is not None
            one.unmeasured = "" if self._complete else "no test ran"

    def _remember(self, one: Round, ran: Collection[str]) -> None:
        """Note which tests of this build fail, as far as is known."""
        if one.work.tests is None:
            self._complete, self._failing = True, {}
        for key in tuple(self._failing):
            if key[1].partition("::")[0].endswith(tuple(ran)):
                del self._failing[key]
        one.failing = tuple(self._failing.values())
        self._failing |= {(row["variant"], row["test"]): row for row in one.failed}

    # -- measuring -------------------------------------------------------------------------

    def _bench(self, one: Round, events: RoundEvents, stop: Stop) -> None:
        if not self._options.bench:
            one.unmeasured = "not asked for"
            return
        fit = project_tests.fitting(tuple(self._current))
        if not fit:
            one.unmeasured = "no GPU here"
            return
        name, root = fit[-1], self._options.root
        if not (root / "benchmarks" / "workloads.py").is_file():
            one.unmeasured = "the project has no benchmarks/workloads.py"
            return
        old = self.good.variants.get(name) if self.good else None
        out = self._scratch / "bench.json"
        asked = {
            "project": str(root),
            "new": str(self._current[name]),
            "old": str(old) if old and old != self._current[name] else None,
            "device": "cuda" if name in self._cuda else "cpu",
            "only": list(self._options.workloads),
            "out": str(out),
        }
        events.state("measuring", name)
        stop.check()
        argv = (sys.executable, "-m", "kernforge.dev.bench", json.dumps(asked))
        done = run(Command(argv=argv, timeout=_BENCH_S, tidies=True))
        stop.check()
        if done.timed_out:
            self._measured = True
            one.unmeasured = (
                f"it took more than {_BENCH_S:.0f} s: `kernforge bench` has the patience"
            )
            return
        if done.returncode:
            raise UsageError(
                f"the benchmark ended with status {done.returncode}:\n{done.stderr[-2000:].strip()}",
                hint="see how `kernforge bench` fares, or leave it out with --no-bench",
            )
        found: dict[str, Any] = json.loads(out.read_text())
        self._measured = True
        if "error" in found:
            one.unmeasured = found["error"]
        else:
            one.ratios = dev_bench.ratios(found)

    # -- the last good one -----------------------------------------------------------------

    def _keep(self, one: Round) -> None:
        """Make what is built the last good build."""
        place = self._options.place / "good"
        if any(not path.is_relative_to(place) for path in self._current.values()):
            top = next(iter(self._current.values())).parent
            files.write_atomic(top / _FIGURES, json.dumps(report.document(one)))
            files.replace_tree(top, place)
            self._current = {name: place / name for name in self._current}
            one.variants = self._current
        figures = json.loads((place / _FIGURES).read_text())
        self.good = Good(round=one.number, variants=self._current, figures=figures)


def _stored(place: Path) -> Good | None:
    """The last good build of an earlier session."""
    try:
        figures = json.loads((place / _FIGURES).read_text())
    except (OSError, ValueError):
        return None
    variants = {path.name: path for path in sorted(place.iterdir()) if path.is_dir()}
    return Good(round=0, variants=variants, figures=figures)


@contextlib.contextmanager
def _timed(one: Round, stage: str) -> Iterator[None]:
    """Note the seconds of a stage in a round."""
    start = time.monotonic()
    try:
        yield
    finally:
        one.seconds[stage] = round(time.monotonic() - start, 3)

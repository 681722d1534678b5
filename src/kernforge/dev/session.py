# SPDX-License-Identifier: Apache-2.0
"""One round of ``kernforge dev``: build, test, read the machine code, measure.

After an edit of device code only that is compiled. The last good build is one directory, which is
replaced when another build has passed its tests.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.artifact.metadata import FILE
from kernforge.bench.project import BenchRequest
from kernforge.binary import kernel_usage
from kernforge.builder import api as build_api, workspace as build_workspace
from kernforge.builder.action import Failure
from kernforge.builder.api import BuildRequest
from kernforge.builder.sandbox import Mode
from kernforge.builder.workspace import Workspace
from kernforge.dev.rounds import GoodBuild, Round, RoundEvents, StoppedError, Work
from kernforge.errors import BuildError, CheckError, KernforgeError, UntestedError, UsageError
from kernforge.extension.device import nvcc_stages
from kernforge.extension.device.swap import replace_edited
from kernforge.extension.device.units import DeviceSession
from kernforge.loader import host
from kernforge.project import targets as project_targets, units
from kernforge.project.api import read_project
from kernforge.project.targets import Target
from kernforge.source import diagnostics
from kernforge.system import digest, files
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run
from kernforge.testing import project_tests
from kernforge.testing.project_tests import Tested
from kernforge.toolchain.local_parts import LocalParts

_BENCH_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DevOptions:
    """Options of a session.

    Attributes:
        variants: names or patterns; empty for the best variant for this process.
        arch: compute capabilities to compile for; empty for this machine's GPU.
        workloads: workloads to measure; empty for the first one.
    """

    root: Path
    place: Path
    environment: Environment
    variants: tuple[str, ...] = ()
    arch: tuple[str, ...] = ()
    sandbox: Mode = "auto"
    test: bool = True
    bench: bool = True
    pytest: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()


class Session:
    """A session of a project, with an empty directory for builds that are not good yet."""

    def __init__(self, options: DevOptions, scratch: Path) -> None:
        self._options, self._scratch = options, scratch
        self._device = DeviceSession()
        self._current: Mapping[str, Path] = {}
        self._identity = ""
        self._cuda: frozenset[str] = frozenset()
        self._kernels: tuple[kernel_usage.Kernel, ...] = ()
        self._repo_id: str | None = None
        self._uncompiled: Mapping[str, tuple[str, ...]] = {}
        # Of the present build.
        self._tests_passed = self._measured = False
        self.good = _stored(options.place / "good")

    @property
    def built(self) -> bool:
        """Whether there is a build that tests can run on."""
        return bool(self._current)

    def run(self, number: int, changed: tuple[str, ...], work: Work, events: RoundEvents) -> Round:
        """Run a round; ``StoppedError`` if ``events`` ended it."""
        result = Round(number=number, files=changed, work=work)
        try:
            self._stages(result, events)
        except StoppedError:
            raise
        except Exception as error:
            events.check()  # a killed program causes other errors
            if not isinstance(error, KernforgeError):
                raise
            result.error = {
                "error": type(error).__name__,
                "message": error.message,
                "hint": error.hint,
            }
            result.exit_code = error.exit_code
        events.check()
        if result.ok and self._current and self.passed:
            self._keep(result)
        return result

    @property
    def passed(self) -> bool:
        """Whether the present build passed all tests, or none are wanted."""
        return self._tests_passed or not self._options.test

    def _stages(self, result: Round, events: RoundEvents) -> None:
        if result.work.build:
            with _timed(result, "build"):
                self._build(result, events)
        events.check()
        result.variants, result.kernels = self._current, self._kernels
        result.uncompiled = self._uncompiled
        if result.exit_code or not self._current:
            return
        if result.work.tests != () and self._options.test:
            with _timed(result, "test"):
                self._test(result, events)
        if result.ok and self.passed and (result.work.bench or not self._measured):
            with _timed(result, "bench"):
                self._bench(result, events)

    # -- building --------------------------------------------------------------------------

    def _build(self, result: Round, events: RoundEvents) -> None:
        events.state("compiling")
        project = read_project(self._options.root)
        self._repo_id = project.manifest.general.hub.repo_id
        environment = self._options.environment
        parts = LocalParts.named(environment, units.cutlass(project.manifest))
        workspace = build_workspace.open_workspace(project, events, environment, parts)
        targets = _targets(workspace, self._options.variants)
        request = BuildRequest(
            targets=targets,
            events=events,
            only=self._options.arch or _capability(targets),
            sandbox=self._options.sandbox,
            runner=nvcc_stages.run_stages,
            edited=functools.partial(replace_edited, self._device),
            every_source=True,
        )
        planned = build_api.plan_project(workspace, request)
        links = [artifact.extension or "" for artifact in planned.plan.artifacts]
        identity = digest.key("dev", sources=planned.plan.sources_id, links=links)
        if self._current and identity == self._identity:
            return
        request = replace(request, out=self._scratch / identity[:16])
        built = build_api.build_project(workspace, request, planned)
        events.check()
        result.ran, self._uncompiled = built.outcome.ran, built.uncompiled
        if built.outcome.failures:
            files.remove_tree(self._scratch / identity[:16])
            self._report_failures(result, built.outcome.failures)
            return
        self._kernels = _kernels(built.variants.values())
        for old in {path.parent for path in self._current.values()}:
            if old.is_relative_to(self._scratch):
                files.remove_tree(old)
        self._current, self._identity = dict(built.variants), identity
        self._cuda = frozenset(target.name for target in request.targets if target.cuda)
        self._tests_passed = self._measured = False

    def _report_failures(self, result: Round, failures: Sequence[Failure]) -> None:
        root = self._options.root

        def read(name: str) -> str | None:
            path = root / name
            inside = path.resolve().is_relative_to(root.resolve())
            return path.read_text(errors="replace") if inside and path.is_file() else None

        messages = [d for failure in failures for d in diagnostics.parse(failure.output)]
        result.diagnostics = tuple(
            (message, diagnostics.excerpt(message, read))
            for message in diagnostics.errors(tuple(dict.fromkeys(messages)))
        )
        result.output = tuple((failure.action.title, failure.output) for failure in failures)
        result.exit_code = BuildError.exit_code

    # -- testing ---------------------------------------------------------------------------

    def _test(self, result: Round, events: RoundEvents) -> None:
        root, options = self._options.root, self._options
        existing = [path for path in result.work.tests or () if (root / path).is_file()]
        untested: dict[str, str] = {}
        done: list[Tested] = []
        suitable = project_tests.fitting(tuple(self._current))
        for name, path in self._current.items():
            if name not in suitable:
                untested[name] = "no GPU here" if name in self._cuda else "not for this machine"
                continue
            events.state("testing", ", ".join(existing) or name)
            done.append(
                project_tests.run_variant(
                    root,
                    path,
                    options.pytest,
                    environment=options.environment,
                    repo_id=self._repo_id,
                    only=existing,
                    cache=options.place / "pytest",
                )
            )
            events.check()
        skipped = {
            t.variant: f"every test was skipped: {t.skip_reason}" for t in done if t.skip_reason
        }
        result.tested, result.untested = tuple(done), untested | skipped
        ok = all(tested.ok for tested in done)
        if not ok or not existing:  # a part of the tests may only spoil the result of all
            self._tests_passed = ok and not skipped
        if not ok:
            result.exit_code = CheckError.exit_code
        elif skipped:
            result.exit_code = UntestedError.exit_code
            result.unmeasured = "" if self._tests_passed else "no test ran"

    # -- measuring -------------------------------------------------------------------------

    def _bench(self, result: Round, events: RoundEvents) -> None:
        if not self._options.bench:
            result.unmeasured = "not asked for"
            return
        suitable = project_tests.fitting(tuple(self._current))
        if not suitable:
            result.unmeasured = "no GPU here"
            return
        name, root = suitable[-1], self._options.root
        if not (root / "benchmarks" / "workloads.py").is_file():
            result.unmeasured = "the project has no benchmarks/workloads.py"
            return
        good = self.good.variants.get(name) if self.good else None
        builds = dict.fromkeys(path for path in (good, self._current[name]) if path)
        first, *others = builds
        request = BenchRequest(
            project=root,
            kernel=first,
            against=tuple(map(str, others)),
            only=self._options.workloads,
            named=(),
            device="cuda" if name in self._cuda else "cpu",
        )
        out = self._scratch / "bench.json"
        events.state("measuring", name)
        argv = (sys.executable, "-m", "kernforge.dev.bench", request.to_json(), str(out))
        done = run(Command(argv=argv, timeout=_BENCH_S))
        events.check()
        self._measured = done.timed_out or not done.returncode
        if done.timed_out:
            why = f"it took more than {_BENCH_S:.0f} s: `kernforge bench` has no such limit"
            result.unmeasured = why
        elif done.returncode:
            raise UsageError(
                "the benchmark ended with status "
                f"{done.returncode}:\n{done.stderr[-2000:].strip()}",
                hint="run `kernforge bench` to see the error, or pass --no-bench",
            )
        else:
            document = files.read_json(out)
            result.unmeasured = document["error"]
            result.times = tuple(document.get("times", ()))

    # -- the last good build ---------------------------------------------------------------

    def _keep(self, result: Round) -> None:
        """Make the present build the last good build."""
        directory = self._options.place / "good"
        if any(not path.is_relative_to(directory) for path in self._current.values()):
            current = next(iter(self._current.values())).parent
            files.replace_tree(current, directory)
            self._current = {name: directory / name for name in self._current}
            result.variants = self._current
        self.good = GoodBuild(round=result.number, variants=self._current)


def _stored(directory: Path) -> GoodBuild | None:
    """The last good build of an earlier session."""
    variants = {path.parent.name: path.parent for path in sorted(directory.glob(f"*/{FILE}"))}
    return GoodBuild(round=0, variants=variants) if variants else None


@contextlib.contextmanager
def _timed(result: Round, stage: str) -> Iterator[None]:
    """Record the seconds of a stage in a round."""
    start = time.monotonic()
    try:
        yield
    finally:
        result.seconds[stage] = round(time.monotonic() - start, 3)


def _targets(workspace: Workspace, patterns: Sequence[str]) -> tuple[Target, ...]:
    if patterns:
        return project_targets.choose(workspace.candidates, patterns)
    names = [candidate.name for candidate in workspace.candidates if candidate.target]
    # The last one is that of the GPU if there is one: one build for an edit, for this process.
    suitable = project_tests.chosen(names)[-1:]
    return project_targets.choose(workspace.candidates, suitable)


def _capability(targets: Sequence[Target]) -> tuple[str, ...]:
    """Compute capability of this machine's GPU, if a target is for CUDA."""
    if not any(target.cuda for target in targets):
        return ()
    here = host.with_device(host.probe()).capability
    return (str(here),) if here else ()


def _kernels(variants: Iterable[Path]) -> tuple[kernel_usage.Kernel, ...]:
    """Kernels of built variants with their resources; without those in compressed code."""
    kernels: dict[tuple[str, str], kernel_usage.Kernel] = {}
    for module in (each for variant in variants for each in sorted(variant.rglob("*.so"))):
        with contextlib.suppress(CheckError):
            for kernel in kernel_usage.read(module.read_bytes()):
                kernels.setdefault((kernel.use.symbol, kernel.arch), kernel)
    return tuple(kernels.values())

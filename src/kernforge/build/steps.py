# SPDX-License-Identifier: Apache-2.0
"""The course of a build after its lock: plan, isolate, build.

Each step takes what the one before made. The command line, a test and a script call the same
steps.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from kernforge._version import __version__
from kernforge.build.execute import executor, results, sandbox
from kernforge.build.execute.action import Workshop
from kernforge.build.execute.sandbox import Sandbox
from kernforge.build.plan import planner
from kernforge.build.provenance import Origin
from kernforge.errors import BuildError
from kernforge.system.process import Command, run
from kernforge.toolchain.cuda_arch import Arch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from kernforge.build.execute.outcome import Crew, Events, Outcome
    from kernforge.build.plan.graph import Plan
    from kernforge.build.workspace import Bench
    from kernforge.project.api import Project
    from kernforge.project.targets import Target
    from kernforge.toolchain.lockfile import Lock


def make_plan(
    bench: Bench,
    targets: Sequence[Target],
    locked: Lock,
    *,
    only: Sequence[str] = (),
    attempt: int = 0,
) -> Plan:
    """The graph of actions of a build.

    Args:
        bench: the project.
        targets: the variants.
        locked: the toolchain.
        only: compute capabilities to narrow device code to, as ``"9.0"``; empty narrows nothing.
        attempt: see ``plan.make``.
    """
    return planner.make(
        bench.project.manifest,
        bench.sources,
        targets,
        locked,
        static_libstdcxx=bench.compiler.static_libstdcxx,
        only=tuple(map(Arch.parse, only)),
        attempt=attempt,
    )


def choose_sandbox(bench: Bench, mode: sandbox.Mode) -> Sandbox:
    """How actions are kept to what they were given, on this machine; see ``sandbox.probe``."""
    return sandbox.probe(mode, bench.compiler.path, run, os.environ.get("PATH", ""))


def prepare_sandbox(
    bench: Bench,
    made: Plan,
    mode: sandbox.Mode,
    *,
    elsewhere: bool = False,
    note: Callable[[str], None],
) -> Sandbox:
    """Choose the sandbox of a build; if there is one, refuse the results that none saw made.

    Those that are here are forgotten, those of the shared store are not taken: both are made
    again. Nothing is tried when nothing is left to run.

    Args:
        bench: the project.
        made: what will be built.
        mode: what the user wants.
        elsewhere: whether other machines run the actions; they isolate as far as each can, so
            that what none saw made is refused only if a sandbox is required.
        note: is told why there is no sandbox, and what was refused.
    """
    store, anything = bench.store, bench.store.accepts
    insists = mode == "required" or (mode == "auto" and not elsewhere)
    if insists:
        store.accepts = results.isolated
        results.pull(made, store)
    if mode != "off" and results.all_isolated(made, store):
        return Sandbox(kind="off", reason="nothing is left to run", wanted=mode)
    found = choose_sandbox(bench, mode)
    if found.isolates and insists:
        results.forget_unisolated([action.key for action in made.actions], store)
        if store.refused:
            note(
                f"{len(store.refused)} results of the shared store were made without a sandbox: "
                "they are made again"
            )
    if not found.isolates:
        store.accepts = anything
        note(f"note: actions run without a sandbox: {found.reason}")
    return found


def run_plan(
    bench: Bench,
    made: Plan,
    roots: Mapping[str, str],
    locked: Lock,
    *,
    out: Path,
    jobs: int,
    events: Events,
    crew: Crew | None = None,
    isolation: Sandbox = sandbox.OFF,
    start: Origin | None = None,
) -> Outcome:
    """Build what was planned; see ``build.build``.

    ``start`` is what the provenance will say that it was built from, if not from what lies here.
    """
    return executor.build(
        made,
        bench.project,
        make_workshop(bench, roots, jobs=jobs, isolation=isolation),
        out=out,
        origin=start or origin(bench, made, locked),
        events=events,
        crew=crew,
    )


def make_workshop(
    bench: Bench, roots: Mapping[str, str], *, jobs: int, isolation: Sandbox
) -> Workshop:
    """What actions run with on this machine."""
    return Workshop(store=bench.store, roots=roots, runner=run, jobs=jobs, sandbox=isolation)


def refuse_failures(made: Plan, outcome: Outcome) -> None:
    """Raise what a build that left something out is.

    Raises:
        BuildError: an action failed.
    """
    if outcome.failures:
        raise BuildError(
            f"{len(outcome.failures)} of {len(made.actions)} actions failed, so "
            f"{', '.join(outcome.left_out)} could not be built",
            hint="the compiler's own words are above",
        )


def origin(bench: Bench, made: Plan, locked: Lock) -> Origin:
    """What a build starts from, for its provenance."""
    one = bench.project
    asked = ("git", "-C", str(one.root), "rev-parse", "--show-prefix")
    return Origin(
        sources=made.sources_id,
        lock=locked,
        version=__version__,
        url=one.manifest.general.source,
        git=one.git,
        folder=run(Command(argv=asked)).stdout.strip().strip("/") if one.git else "",
    )


def tagged_version(one: Project) -> str | None:
    """Version that a git tag ``vX.Y.Z`` gives to the commit that is checked out, if one does."""
    if one.git is None or one.git.dirty:
        return None
    tags = run(Command(argv=("git", "-C", str(one.root), "tag", "--points-at", "HEAD"))).stdout
    pattern = rf"v({one.manifest.general.version}\.\d+\.\d+)"
    found = [match[1] for tag in tags.split() if (match := re.fullmatch(pattern, tag))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def card(one: Project) -> str | None:
    """Text of the project's CARD.md, unless it is a template that another tool must fill."""
    path = one.root / "CARD.md"
    text = path.read_text() if path.is_file() else None
    return None if text is None or "{%" in text else text


def benchmarks(one: Project) -> dict[str, Path]:
    """The scripts of a project that measure its published kernel, by file name."""
    found = (re.fullmatch(r"benchmarks/(benchmark[^/]*\.py)", path) for path in one.files)
    return {match[1]: one.files[match[0]] for match in found if match}

# SPDX-License-Identifier: Apache-2.0
"""Build a kernel project for this process's torch and GPU, and load it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge import (
    eviction,
    host,
    jit_files,
    jit_machine,
    locking,
    pipeline,
    report,
    resolve,
    roots,
    workbench,
)
from kernforge.errors import BuildError, NoVariantError
from kernforge.home import home
from kernforge.loading import get_local_kernel
from kernforge.report import Report

if TYPE_CHECKING:
    from pathlib import Path
    from types import ModuleType

    from kernforge.jit_files import Stamp
    from kernforge.matrix import Target
    from kernforge.workbench import Bench


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """A project that is loaded: its files and directories as they were, and its package."""

    stamps: dict[str, Stamp | None]
    listing: dict[str, int]
    module: ModuleType


_known: dict[tuple[Path, str | None], _Known] = {}


def load_project(directory: Path, *, verbose: bool = False) -> ModuleType:
    """Build the project that holds a directory, and import it; one that is unchanged is returned.

    Args:
        directory: the project's, or one below.
        verbose: say what is compiled, on stderr.

    Raises:
        BuildError: a compiler failed, with its words.
        ManifestError: its build.toml is wrong.
        NoVariantError: it has no variant for this process.
        UsageError: there is no project.
    """
    key = (directory.absolute(), os.environ.get("KERNFORGE_HOME"))
    known = _known.get(key)
    if known and _unchanged(known):
        return known.module
    one = workbench.read_project(directory)
    stamps = {str(path): jit_files.stamp(str(path)) for path in one.files.values()}
    folders = {str(path.parent) for path in one.files.values()}
    listing = {folder: os.stat(folder).st_mtime_ns for folder in folders}  # noqa: PTH116
    bench = workbench.set_up(one, teller := Report(quiet=not verbose, failures=False))
    module = get_local_kernel(_build(bench, _target(bench), teller))
    _known[key] = _Known(stamps=stamps, listing=listing, module=module)
    return module


def _unchanged(known: _Known) -> bool:
    try:
        same = all(os.stat(f).st_mtime_ns == when for f, when in known.listing.items())  # noqa: PTH116
    except FileNotFoundError:
        return False
    return same and all(jit_files.stamp(path) == old for path, old in known.stamps.items())


def _target(bench: Bench) -> Target:
    """The project's variant for this process.

    Raises:
        NoVariantError: it has none.
    """
    targets = {one.name: one.target for one in bench.candidates if one.target}
    found = resolve.resolve(targets, host.probe())
    chosen = targets.get(found.best.name) if found.best else None
    if chosen is None:
        refused = "\n".join(
            f"{one.name}: {one.reason}" for one in bench.candidates if not one.target
        )
        raise NoVariantError(
            f"{bench.project.root} has no variant for this process\n{found.trace()}\n{refused}",
            hint="kernforge variants lists them",
        )
    return chosen


def _build(bench: Bench, target: Target, teller: Report) -> Path:
    locked, _ = locking.ensure_lock(bench, (target,), locked=False)
    here = host.with_device(host.probe()).capability
    only = (f"{here[0]}.{here[1]}",) if here and target.cuda else ()
    made = pipeline.make_plan(bench, (target,), locked, only=only)
    (artifact,) = made.artifacts
    # A directory of its own for each state of the sources: what a process has loaded stays.
    out = home() / "jit" / "projects" / f"{artifact.ops_name}-{made.sources_id[:16]}"
    with bench.store.lease():
        paths = roots.fetch(bench, made, locked)
        jobs = jit_machine.jobs()
        outcome = pipeline.run_plan(bench, made, paths, locked, out=out, jobs=jobs, events=teller)
        if bench.store.made:
            eviction.trim(bench.store, eviction.limit(os.environ))
    if outcome.failures:
        words = "\n".join(report.failure_text(failure) for failure in outcome.failures)
        raise BuildError(f"{target.name} could not be built\n{words}")
    return outcome.variants[target.name]

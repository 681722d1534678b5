# SPDX-License-Identifier: Apache-2.0
"""Commands that build and prove: build, check, reproduce, cache."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError
from kernforge.loader.host import cores
from kernforge.system import console as reports

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from kernforge.build.execute.outcome import Crew as BuildCrew
    from kernforge.check.api import Finding
    from kernforge.system.console import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _build,
        "build",
        "build variants of a project and check them",
        "--variant 'torch-stable-abi*-cpu-*'",
    )
    options.add_project(verb)
    verb.add_argument(
        "--variant", action="append", default=[], help="a name or a pattern; may be repeated"
    )
    verb.add_argument(
        "--arch",
        action="append",
        default=[],
        type=options.capability,
        help="only for this GPU, as 9.0; may be repeated",
    )
    options.add_toolchain(verb)
    verb.add_argument("--out", type=Path, help="where the variants go (default: PROJECT/build)")
    verb.add_argument(
        "--jobs",
        type=options.positive,
        default=cores(),
        help="default: as many as cores",
    )
    verb.add_argument(
        "--memory",
        type=options.size,
        metavar="SIZE",
        help="what all actions together may take, as 16GB (default: what the machine has left)",
    )
    verb.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="run the actions on the workers of this Dask scheduler, as tcp://farm:8786",
    )
    verb.add_argument(
        "--shared-store",
        metavar="URL",
        default=os.environ.get("KERNFORGE_SHARED_STORE"),
        help="look for results here too, and put new ones here: any fsspec URL, as file:///mnt/farm "
        "or s3://bucket/prefix (default: KERNFORGE_SHARED_STORE)",
    )
    verb.add_argument("--dry-run", action="store_true", help="show the graph of actions, run none")
    verb.add_argument("--locked", action="store_true", help="refuse to change kernforge.lock")
    verb.add_argument("--no-check", action="store_true", help="leave out the checks at the end")
    options.add_sandbox(verb)

    verb = options.add_verb(
        verbs, _check, "check", "check built variants against what they promise", "build"
    )
    verb.add_argument(
        "dir",
        type=Path,
        nargs="?",
        default=Path("build"),
        help="a variant, or a directory of variants (default: build)",
    )

    verb = options.add_verb(
        verbs, _cache, "cache", "show what the store holds, and make it smaller", "--trim 10GB"
    )
    change = verb.add_mutually_exclusive_group()
    change.add_argument(
        "--trim",
        type=options.size,
        metavar="SIZE",
        help="take away what was not used for longest, until the rest fits",
    )
    change.add_argument(
        "--clear", metavar="SHELF", help="take away a whole shelf: toolchains, actions or findings"
    )

    _reproduce_verb(verbs)


def _reproduce_verb(verbs: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    verb = options.add_verb(
        verbs,
        _reproduce,
        "reproduce",
        "build variants again from what they say of themselves, and compare",
        "build --source .",
    )
    verb.add_argument("what", help="a variant, a directory of variants, or owner/name")
    verb.add_argument(
        "--source", type=Path, help="checkout with the sources (default: the repository they name)"
    )
    verb.add_argument("--variant", default="*", help="a name or a pattern (default: all)")
    options.add_registry(verb)
    verb.add_argument("--version", default="", help="of owner/name (default: the newest)")
    verb.add_argument(
        "--jobs",
        type=options.positive,
        default=cores(),
        help="default: as many as cores",
    )
    options.add_sandbox(verb)


def _build(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.build import locking, steps, trees  # noqa: PLC0415
    from kernforge.build.execute import results  # noqa: PLC0415
    from kernforge.build.execute.local_pool import Crew  # noqa: PLC0415
    from kernforge.check import cache  # noqa: PLC0415
    from kernforge.project import targets as project_targets  # noqa: PLC0415
    from kernforge.store import eviction  # noqa: PLC0415
    from kernforge.system.process import run  # noqa: PLC0415

    size = eviction.limit(os.environ)
    bench = options.bench(arguments, report, shared=arguments.shared_store)
    for note in bench.project.manifest.notes:
        report.note(f"note: {note}")
    targets = project_targets.choose(bench.candidates, arguments.variant)
    locked, written = locking.ensure_lock(bench, targets, locked=arguments.locked)
    if written:
        report.note(f"wrote {bench.project.root / 'kernforge.lock'}: keep it in version control")
    for note in locking.cuda_notes(targets, locked):
        report.note(f"note: {note}")
    made = steps.make_plan(bench, targets, locked, only=arguments.arch)
    if arguments.dry_run:
        known = results.cached(made, bench.store)
        report.result(reports.graph_document(made, known), reports.graph_text(made, known))
        return
    out = arguments.out or bench.project.root / "build"
    findings: list[Finding] = []
    with bench.store.lease():
        isolation = steps.prepare_sandbox(
            bench,
            made,
            arguments.sandbox,
            elsewhere=bool(arguments.scheduler),
            note=report.note,
        )
        crew: BuildCrew
        if arguments.scheduler:
            from kernforge.build.cluster.pool import Cluster  # noqa: PLC0415

            results.pull(made, bench.store)
            paths: dict[str, str] = {}
            crew = Cluster(
                arguments.scheduler,
                bench=bench,
                plan=made,
                locked=locked,
                jobs=arguments.jobs,
                isolation=isolation,
                note=report.note,
            )
        else:
            paths = trees.fetch(bench, made, locked)
            if received := bench.wheels.received:
                report.note(f"{received / 1e6:.0f} MB came over the network")
            crew = Crew(jobs=arguments.jobs, limit=arguments.memory)
        outcome = steps.run_plan(
            bench,
            made,
            paths,
            locked,
            out=out,
            jobs=arguments.jobs,
            events=report,
            crew=crew,
            isolation=isolation,
        )
        if not arguments.no_check:
            for path in outcome.variants.values():
                findings += cache.check(path, store=bench.store, run=run)
        if bench.store.made or bench.store.fetched:
            eviction.trim(bench.store, size)
    document = {
        "variants": {name: str(path) for name, path in outcome.variants.items()},
        "left_out": list(outcome.left_out),
        "failures": [
            {"action": f.action.title, "output": f.output, "repeat": f.repeat}
            for f in outcome.failures
        ],
        "findings": [reports.finding_document(f) for f in findings],
        "actions": reports.spent_document(outcome),
    }
    lines = [str(path) for path in outcome.variants.values()]
    lines += [f"not built: {name}" for name in outcome.left_out]
    lines += [reports.finding_text(f) for f in findings if f.severity != "skipped"]
    lines.append(reports.spent_text(outcome))
    report.result(document, "\n".join(lines))
    steps.refuse_failures(made, outcome)
    refuse_errors(findings)


def _check(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.check import api as check  # noqa: PLC0415
    from kernforge.system.process import run  # noqa: PLC0415

    findings = check.check_build(arguments.dir, run=run, python=sys.executable)
    text = (
        "\n".join(map(reports.finding_text, findings))
        or f"{arguments.dir}: nothing to find fault with"
    )
    report.result([reports.finding_document(f) for f in findings], text)
    refuse_errors(findings)


def _reproduce(arguments: argparse.Namespace, report: Report) -> None:
    import fnmatch  # noqa: PLC0415

    from kernforge.audit import reproduce  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415
    from kernforge.system.paths import home  # noqa: PLC0415

    subjects = reproduce.find(
        arguments.what,
        registry=options.registry(arguments),
        version=arguments.version,
    )
    pattern = arguments.variant
    subjects = tuple(s for s in subjects if fnmatch.fnmatch(s.statement.variant, pattern))
    if not subjects:
        raise UsageError(f"no variant there is named {pattern!r}", hint="leave --variant out")
    manner = reproduce.Manner(
        mode=arguments.sandbox, jobs=arguments.jobs, progress=report, events=report
    )
    with files.staging(home() / "reproduce") as workplace:
        verdicts = reproduce.again(
            subjects, source=arguments.source, workplace=workplace, manner=manner
        )
    report.result(
        [reports.verdict_document(v) for v in verdicts],
        "\n".join(map(reports.verdict_text, verdicts)),
    )
    wrong = [v.variant for v in verdicts if v.differences]
    if wrong:
        raise CheckError(
            f"{len(wrong)} of {len(verdicts)} variants are not what their sources and lock give",
            hint="each difference above says which file, and which action made it",
        )


def _cache(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.store import eviction  # noqa: PLC0415
    from kernforge.store.local import Store  # noqa: PLC0415
    from kernforge.system.paths import home  # noqa: PLC0415

    store, size = Store(home() / "store"), eviction.limit(os.environ)
    removed = None
    if arguments.trim is not None:
        removed = eviction.trim(store, arguments.trim)
    elif arguments.clear:
        removed = eviction.clear(store, arguments.clear)
    found = eviction.survey(store)
    report.result(
        reports.cache_document(store.root, found, size, removed),
        reports.cache_text(store.root, found, size, removed),
    )


def refuse_errors(findings: Sequence[Finding]) -> None:
    """Raise if a finding is an error.

    Raises:
        CheckError: one is.
    """
    wrong = [finding for finding in findings if finding.severity == "error"]
    if wrong:
        raise CheckError(
            f"{len(wrong)} findings: the artifact would not work everywhere that its name promises",
            hint="each finding above says how to mend it",
        )

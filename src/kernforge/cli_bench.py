# SPDX-License-Identifier: Apache-2.0
"""Commands that measure: bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge import cli_options as options
from kernforge import report as reports
from kernforge.errors import CheckError, UsageError

if TYPE_CHECKING:
    import argparse

    from kernforge.report import Report


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _bench,
        "bench",
        "measure a project's kernel beside its peers; exits 6 when a candidate is refused or slower "
        "than --baseline",
        "kernels/img2gray --kernel build --out now.json",
    )
    options.add_project(verb)
    verb.add_argument(
        "--kernel", type=Path, help="directory of the built kernel (default: PROJECT/build)"
    )
    verb.add_argument(
        "--against",
        metavar="OWNER/NAME@vN",
        action="append",
        default=[],
        help="also measure this published version",
    )
    options.add_registry(verb)
    verb.add_argument(
        "--hub",
        action="store_true",
        help="measure benchmarks/benchmark*.py, as `kernforge benchmark` does (default where there "
        "is no benchmarks/workloads.py)",
    )
    verb.add_argument("--no-eager", action="store_true", help="leave torch's own out")
    options.add_measuring(verb)
    verb.add_argument("--out", type=Path, help="write the result there, as JSON")
    verb.add_argument("--baseline", type=Path, help="a stored result that must not be undercut")
    verb.add_argument(
        "--allow", type=float, default=0.05, help="share by which a median may grow (default: 0.05)"
    )


def _bench(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import bench, bench_hub, bench_report, files  # noqa: PLC0415

    before = _stored(arguments.baseline) if arguments.baseline else None
    wanted = bench.Wanted(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        eager=not arguments.no_eager,
    )
    classes = arguments.hub or bench_hub.only_classes(arguments.project)
    if classes:
        document = _run_classes(arguments, report)
    else:
        document = bench.run(
            bench.workloads(wanted),
            bench.candidates(wanted),
            options.measuring(arguments),
            report.note,
        )
    slower = []
    if before is not None:
        slower = bench_report.regressions(document, before, allowed=arguments.allow)
        document["regressions"] = slower
    if arguments.out:
        files.write_atomic(arguments.out, json.dumps(document, indent=2) + "\n")
    report.result(document, options.classes_text(document) if classes else _text(document))
    if refused := bench_hub.refusals(document) + slower:
        raise CheckError("\n".join(refused), hint="see the page on honest benchmarks")


def _run_classes(arguments: argparse.Namespace, report: Report) -> dict[str, Any]:
    """Measure a project's scripts of the hub's form."""
    from kernforge import bench_hub  # noqa: PLC0415

    kernel = _kernel(arguments)
    if kernel is None:
        raise UsageError(
            f"{arguments.project} has no build/ to measure",
            hint="kernforge build first, or name another directory with --kernel",
        )
    wanted = bench_hub.Wanted(
        repo=arguments.project.absolute(),
        kernel=str(kernel.absolute()),
        registry=arguments.registry,
        against=tuple(arguments.against),
        only=tuple(arguments.workload),
        reference=not arguments.no_eager,
    )
    return bench_hub.run(wanted, options.measuring(arguments, graphs=False), report.note)


def _kernel(arguments: argparse.Namespace) -> Path | None:
    if arguments.kernel:
        if not arguments.kernel.is_dir():
            raise UsageError(f"{arguments.kernel} is no directory", hint="kernforge build first")
        return Path(arguments.kernel)
    built = Path(arguments.project) / "build"
    return built if built.is_dir() else None


def _stored(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise UsageError(f"{path} cannot be read as a stored result: {error}") from error


def _text(document: dict[str, Any]) -> str:
    from kernforge import bench_report  # noqa: PLC0415

    where = document["machine"]
    parts = [f"{where['gpu'] or where['cpu']}, torch {where['torch']}"]
    for case in document["workloads"]:
        for mode in document["settings"]["modes"]:
            bound = case["ceilings"][mode]["bound"]
            parts.append(f"\n{case['name']}, {mode}, bound by {bound}")
            parts.append(reports.table(bench_report.rows(case, mode), head=bench_report.HEAD))
    return "\n".join(parts)

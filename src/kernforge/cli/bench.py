# SPDX-License-Identifier: Apache-2.0
"""Commands that measure: bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError, page
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse

    from kernforge.system.console import Report

_ROOF = (
    "roof: the time of a copy of as many bytes, or of torch's matrix product with as many operations, "
    "in the same run"
)
_UNSURE = "~: no sure difference from the kernel's time, round by round, with 95 % confidence"
_RATE = (
    "times the kernel's: ratio of the times, round by round, with its 95 % interval\n"
    "GB/s: bytes that must be moved (10^9 a second), inputs and results once unless declared"
)
_FEW = 4  # Workloads of which each has a table.


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _bench,
        "bench",
        "measure a project's kernel beside its peers; exits 6 when a candidate is refused, or the "
        "kernel slower than --baseline or --against",
        "kernels/img2gray --out now.json --html now.html",
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
        "--sizes",
        metavar="2^10:2^30[:STEP]",
        help="measure the project's sized(elements) at these powers of two, or at 1000,2^20",
    )
    verb.add_argument(
        "--hub",
        action="store_true",
        help="measure benchmarks/benchmark*.py, as `kernforge benchmark` does (default where there "
        "is no benchmarks/workloads.py)",
    )
    verb.add_argument("--no-eager", action="store_true", help="leave torch's own out")
    options.add_measuring(verb)
    verb.add_argument("--out", type=Path, help="write the result there, as JSON")
    verb.add_argument("--html", type=Path, help="write one page there that needs nothing else")
    verb.add_argument("--baseline", type=Path, help="a stored result that must not be undercut")
    verb.add_argument(
        "--allow", type=float, default=0.05, help="share by which a median may grow (default: 0.05)"
    )


def _bench(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.bench import html, text  # noqa: PLC0415
    from kernforge.bench.hub import run  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    for path in filter(None, (arguments.out, arguments.html)):
        options.can_write(path)
    before = _stored(arguments.baseline) if arguments.baseline else None
    last = before or _last(arguments.out)
    classes = arguments.hub or run.only_classes(arguments.project)
    document = _run_classes(arguments, report) if classes else _run(arguments, report)
    slower = [] if classes else text.behind(document, allowed=arguments.allow)
    if before is not None:
        slower += text.regressions(document, before, allowed=arguments.allow)
    document["regressions"] = slower
    if not classes:
        document["table"] = text.summary(document)
    if arguments.out:
        files.write_atomic(arguments.out, json.dumps(document, indent=2) + "\n")
    if arguments.html:
        shown = last if last and text.comparable(document, last) else None
        files.write_atomic(arguments.html, html.html(document, shown))
    report.result(document, options.classes_text(document) if classes else _text(document))
    if refused := run.refusals(document) + slower:
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _run(arguments: argparse.Namespace, report: Report) -> dict[str, Any]:
    """Measure a project's own workloads."""
    from kernforge.bench import api as bench  # noqa: PLC0415
    from kernforge.bench.engine import workload  # noqa: PLC0415
    from kernforge.bench.hub import scripts  # noqa: PLC0415

    settings = options.measuring(arguments)
    for each in arguments.against:  # what is not there is said before anything is measured
        backend = "cpu" if settings.device == "cpu" else None
        scripts.bring_kernel(each, registry=arguments.registry, backend=backend)
    wanted = bench.Wanted(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        eager=not arguments.no_eager,
        sizes=tuple(workload.sizes(arguments.sizes)) if arguments.sizes else (),
    )
    return bench.run(
        bench.workloads(wanted),
        bench.candidates(wanted),
        settings,
        report.note,
        project=arguments.project.resolve().name,
    )


def _run_classes(arguments: argparse.Namespace, report: Report) -> dict[str, Any]:
    """Measure a project's scripts of the hub's form."""
    from kernforge.bench.hub import run  # noqa: PLC0415

    kernel = _kernel(arguments)
    if kernel is None:
        raise UsageError(
            f"{arguments.project} has no build/ to measure",
            hint="kernforge build first, or name another directory with --kernel",
        )
    if arguments.html or arguments.sizes:
        raise UsageError(
            "the hub's classes have neither a roof to draw nor sizes",
            hint="leave --html and --sizes out, or write benchmarks/workloads.py",
        )
    wanted = run.Wanted(
        repo=arguments.project.absolute(),
        kernel=str(kernel.absolute()),
        registry=arguments.registry,
        against=tuple(arguments.against),
        only=tuple(arguments.workload),
        reference=not arguments.no_eager,
    )
    return run.run(wanted, options.measuring(arguments, graphs=False), report.note)


def _kernel(arguments: argparse.Namespace) -> Path | None:
    if arguments.kernel:
        if not arguments.kernel.is_dir():
            raise UsageError(f"{arguments.kernel} is no directory", hint="kernforge build first")
        return Path(arguments.kernel)
    built = Path(arguments.project) / "build"
    if not built.is_dir() and (built.parent / "build.toml").is_file():
        raise UsageError(
            f"{built.parent.resolve()} is not built, so there is no kernel to measure",
            hint="kernforge build, or name a built kernel with --kernel",
        )
    return built if built.is_dir() else None


def _last(path: Path | None) -> Any:
    """What a run before this one left there; None when it is no such thing."""
    try:
        return _stored(path) if path and path.is_file() else None
    except UsageError:
        return None


def _stored(path: Path) -> Any:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        why = "there is no such file" if isinstance(error, FileNotFoundError) else str(error)
        raise UsageError(
            f"{path} cannot be read as a stored result: {why}",
            hint="kernforge bench --out writes one",
        ) from error
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no stored result", hint="kernforge bench --out writes one")
    return found


def _text(document: dict[str, Any]) -> str:
    from kernforge.bench import text  # noqa: PLC0415

    parts = text.conditions(document)
    if len(document["workloads"]) > _FEW:
        for mode in document["settings"]["modes"]:
            head, *rows = text.sweep(document, mode)
            parts.append(f"\n{mode}: {text.MODES[mode]}")
            parts.append(tables.table(rows, head=head))
        parts.append(f"\nmedian of a call (share of the roof)\n{_UNSURE}\n{_ROOF}")
        return "\n".join(parts)
    for case in document["workloads"]:
        for mode in document["settings"]["modes"]:
            bound = case["ceilings"][mode]["bound"]
            parts.append(f"\n{case['name']}, {mode}, bound by {bound}: {_how(case, mode)}")
            parts.append(tables.table(text.rows(case, mode), head=text.HEAD))
    parts.append(f"\n{_RATE}\n{_ROOF}")
    return "\n".join(parts)


def _how(case: dict[str, Any], mode: str) -> str:
    """What a mode is, with the calls that one time is of."""
    from kernforge.bench import text  # noqa: PLC0415

    found = [row["in_a_row"] for row in case["results"] if row["mode"] == mode]
    times = f", {max(found)} calls a time" if max(found, default=1) > 1 else ""
    return f"{text.MODES[mode]}{times}"

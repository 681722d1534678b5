# SPDX-License-Identifier: Apache-2.0
"""Commands that measure: bench."""

from __future__ import annotations

import dataclasses
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
    verb.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    verb.add_argument("--mode", action="append", help="cold, hot, launch or graph (default: all)")
    verb.add_argument("--workload", action="append", default=[], help="only this one")
    verb.add_argument("--no-eager", action="store_true", help="leave torch's own out")
    verb.add_argument(
        "--width", type=float, default=0.02, help="interval wanted, of the median (default: 0.02)"
    )
    verb.add_argument(
        "--rounds", type=options.positive, default=40, help="at most so many (default: 40)"
    )
    verb.add_argument("--seed", type=int, default=0, help="repeat the order and inputs of a run")
    verb.add_argument("--out", type=Path, help="write the result there, as JSON")
    verb.add_argument("--baseline", type=Path, help="a stored result that must not be undercut")
    verb.add_argument(
        "--allow", type=float, default=0.05, help="share by which a median may grow (default: 0.05)"
    )


def _bench(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge import bench, bench_report, files  # noqa: PLC0415

    before = _stored(arguments.baseline) if arguments.baseline else None
    wanted = bench.Wanted(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        eager=not arguments.no_eager,
    )
    document = bench.run(
        bench.workloads(wanted), bench.candidates(wanted), _settings(arguments), report.note
    )
    slower = []
    if before is not None:
        slower = bench_report.regressions(document, before, allowed=arguments.allow)
        document["regressions"] = slower
    if arguments.out:
        files.write_atomic(arguments.out, json.dumps(document, indent=2) + "\n")
    report.result(document, _text(document))
    if refused := bench.refusals(document) + slower:
        raise CheckError("\n".join(refused), hint="see the page on honest benchmarks")


def _settings(arguments: argparse.Namespace) -> Any:
    from kernforge import bench_plan  # noqa: PLC0415

    device = arguments.device or _device()
    known = bench_plan.modes_of(device)
    modes = tuple(arguments.mode or known)
    if unknown := [mode for mode in modes if mode not in known]:
        raise UsageError(f"{device} has no mode {unknown[0]}", hint=f"it has {', '.join(known)}")
    settings = bench_plan.Settings(device=device, modes=modes)
    return dataclasses.replace(
        settings,
        width=arguments.width,
        most=arguments.rounds,
        least=min(settings.least, arguments.rounds),
        seed=arguments.seed,
    )


def _device() -> str:
    import torch  # noqa: PLC0415

    return "cuda" if torch.cuda.is_available() else "cpu"


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

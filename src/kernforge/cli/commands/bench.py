# SPDX-License-Identifier: Apache-2.0
"""The command that measures: bench."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError, page

if TYPE_CHECKING:
    import argparse

    from kernforge.bench.hub import Repo
    from kernforge.bench.project import BenchRequest
    from kernforge.bench.workload import Settings
    from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the command of this module."""
    verb = options.add_verb(verbs, _bench, "bench")
    verb.add_argument(
        "project",
        nargs="?",
        type=Path,
        default=Path(),
        metavar="PROJECT|OWNER/NAME@v1",
        help="a project (default: current directory), or a published kernel and its benchmarks",
    )
    options.add_build_dir(verb)
    verb.add_argument(
        "--sizes",
        metavar="2^10:2^30[:STEP]",
        help="measure the project's sized(elements) at these powers of two, or at 1000,2^20",
    )
    options.add_repeated(
        verb,
        "--against",
        "also measure this published version, or the built kernel of this directory",
        metavar="OWNER/NAME@vN",
    )
    options.add_registry(verb)
    verb.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    options.add_repeated(verb, "--mode", "cold, hot or graph (default: all)")
    options.add_repeated(verb, "--workload", "only this one")
    options.add_repeated(
        verb,
        "--candidate",
        "beside the kernel only this one, named as in the tables; `kernel` for none; also the one "
        "that is profiled",
    )
    verb.add_argument(
        "--rounds", type=options.positive, default=40, help="at most; 6 or more (default: 40)"
    )
    verb.add_argument(*("-o", "--out"), type=Path, help="write the result there, as JSON")
    verb.add_argument(
        "--visual",
        metavar="FILE",
        type=Path,
        help="draw the candidates beside the kernel there (.svg, .png, .pdf), or write a page with "
        "all charts and tables (.html)",
    )
    verb.add_argument("--baseline", type=Path, help="a stored result to compare with")
    options.add_flag(
        verb,
        "--profile",
        "also print what Nsight Compute says of one call of each workload, or torch.profiler where "
        "that is not installed",
    )
    options.add_flag(verb, "--trust-remote-code", "load it, whoever published it")


def _bench(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench import hub, profile, project, report  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    _can_write(arguments)
    before = report.stored(arguments.baseline) if arguments.baseline else None
    where: Path = arguments.project
    arguments.device = arguments.device or _device()
    request = repo = None
    if where.is_dir() and not hub.has_only_classes(where):
        settings, request = _settings(arguments, graphs=True), _request(arguments)
        measured = project.measure(request, settings, console.note)
    else:
        settings, repo = _settings(arguments, graphs=False), _repo(arguments)
        measured = hub.measure(
            repo,
            settings,
            console.note,
            against=arguments.against,
            registry=options.registry(arguments),
            trusted=arguments.trust_remote_code,
            only=arguments.workload,
        )
    slower = report.behind(measured)
    if before is not None:
        slower += report.regressions(measured, before, arguments.workload)
    document = report.document(measured, slower) | (hub.payload(measured, repo) if repo else {})
    if arguments.out:
        files.write_atomic(arguments.out, json.dumps(document, indent=1) + "\n")
    console.result(document, report.text(measured))
    if arguments.visual:
        from kernforge.bench import plot  # noqa: PLC0415 - matplotlib

        files.write_atomic(arguments.visual, plot.draw(measured, arguments.visual.suffix))
    if arguments.profile and request and not measured.partial:
        for text in profile.lines(measured, request, console.note):
            console.note(text)
    if measured.partial:
        raise KeyboardInterrupt
    if refused := report.refusals(measured) + slower:
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _can_write(arguments: argparse.Namespace) -> None:
    """Check before anything is measured that the results can be drawn and written."""
    for path in filter(None, (arguments.out, arguments.visual)):
        options.can_write(path)
    if arguments.visual:
        import matplotlib as mpl  # noqa: F401, PLC0415 - a missing module names the extra

        from kernforge.bench import plot  # noqa: PLC0415

        if arguments.visual.suffix not in plot.KINDS:
            raise UsageError(
                f"{arguments.visual} is no kind of picture", hint=f"one of {', '.join(plot.KINDS)}"
            )


def _settings(arguments: argparse.Namespace, *, graphs: bool) -> Settings:
    """How to measure, by the command line.

    Raises:
        UsageError: the device has no such mode, or the rounds are too few.
    """
    from kernforge.bench import stats, workload  # noqa: PLC0415

    device = arguments.device
    known = tuple(mode for mode in workload.MODES[device] if graphs or mode != "graph")
    modes = tuple(arguments.mode) or known
    if unknown := [mode for mode in modes if mode not in known]:
        raise UsageError(f"{device} has no mode {unknown[0]}", hint=f"it has {', '.join(known)}")
    if arguments.rounds < stats.FEWEST:
        raise UsageError(
            f"--rounds {arguments.rounds}: the median of fewer than {stats.FEWEST} rounds has "
            "no 95 % interval",
            hint=f"--rounds {stats.FEWEST} is the least",
        )
    return workload.Settings(device=device, modes=modes, most=arguments.rounds)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _request(arguments: argparse.Namespace) -> BenchRequest:
    """A project's own workloads and candidates."""
    from kernforge.bench import project, workload  # noqa: PLC0415

    return project.BenchRequest(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        named=tuple(arguments.candidate) or None,
        sizes=tuple(workload.sizes(arguments.sizes)) if arguments.sizes else (),
        device=arguments.device,
    )


def _repo(arguments: argparse.Namespace) -> Repo:
    """A published kernel, or a project, whose benchmarks are classes of the hub's."""
    from kernforge.bench import hub  # noqa: PLC0415

    if arguments.sizes or arguments.profile or arguments.candidate:
        raise UsageError(
            "the hub's classes have no sizes and no candidates, and are not profiled",
            hint="leave --sizes, --candidate and --profile out, or write benchmarks/workloads.py",
        )
    if not arguments.project.is_dir():
        return hub.published(
            str(arguments.project),
            options.registry(arguments),
            arguments.environment,
            device=arguments.device,
            trusted=arguments.trust_remote_code,
        )
    kernel = _kernel(arguments)
    if kernel is None:
        raise UsageError(
            f"{arguments.project} has no build/ to measure",
            hint="kernforge build first, or name another directory with --build-dir",
        )
    return hub.local(arguments.project, kernel, arguments.device)


def _kernel(arguments: argparse.Namespace) -> Path | None:
    if arguments.build_dir:
        if not arguments.build_dir.is_dir():
            raise UsageError(
                f"{arguments.build_dir} is not a directory", hint="kernforge build first"
            )
        return Path(arguments.build_dir)
    built = Path(arguments.project) / "build"
    if not built.is_dir() and (built.parent / "build.toml").is_file():
        raise UsageError(
            f"{built.parent.resolve()} is not built, so there is no kernel to measure",
            hint="run `kernforge build`, or name a built kernel with --build-dir",
        )
    return built if built.is_dir() else None

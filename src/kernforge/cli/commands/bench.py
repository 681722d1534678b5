# SPDX-License-Identifier: Apache-2.0
"""Commands that measure: bench, benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError, page

if TYPE_CHECKING:
    import argparse

    from kernforge.bench.project import BenchRequest
    from kernforge.bench.published import Repo
    from kernforge.bench.run import Report
    from kernforge.bench.workload import Settings
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment

_PICTURES = (".svg", ".png", ".pdf")


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    _add_bench(verbs)
    _add_benchmark(verbs)


def _add_bench(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _bench, "bench")
    options.add_project(verb)
    options.add_build_dir(verb)
    verb.add_argument(
        "--sizes",
        metavar="2^10:2^30[:STEP]",
        help="measure the project's sized(elements) at these powers of two, or at 1000,2^20",
    )
    options.add_flag(verb, "--no-eager", "leave torch eager and torch.compile out")
    _add_measuring(verb)
    verb.add_argument(*("-o", "--out"), type=Path, help="write the result there, as JSON")
    verb.add_argument("--html", type=Path, help="write one page with tables and charts there")
    verb.add_argument("--baseline", type=Path, help="a stored result to compare with")
    verb.add_argument(
        "--allow", type=float, default=0.05, help="share by which a median may grow (default: 0.05)"
    )
    options.add_flag(
        verb,
        "--profile",
        "also print what Nsight Compute says of one call of each workload, or torch.profiler where "
        "that is not installed",
    )
    options.add_repeated(
        verb, "--candidate", "profile this one, named as in the tables (default: kernel)"
    )


def _add_benchmark(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _benchmark, "benchmark")
    verb.add_argument(
        "repo", metavar="REPO", help="OWNER/NAME@v1, OWNER/NAME@REVISION, or a directory"
    )
    verb.add_argument("--version", help="1, 1.2.3 or bounds, of a published kernel")
    verb.add_argument(
        "--revision", "--branch", help="a branch, tag or commit of a published kernel"
    )
    _add_measuring(verb)
    verb.add_argument(
        *("-o", "--out", "--output"),
        type=Path,
        help="write the result there: the JSON of `kernels benchmark`, and more",
    )
    options.add_flag(verb, "--trust-remote-code", "load it, whoever published it")


def _add_measuring(verb: argparse.ArgumentParser) -> None:
    """Add how to measure, and beside what."""
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
    verb.add_argument(
        "--rounds", type=options.positive, default=40, help="at most; 6 or more (default: 40)"
    )
    verb.add_argument("--seed", type=int, default=0, help="of the order and the inputs")
    verb.add_argument(
        "--visual",
        metavar="FILE",
        type=_picture_path,
        help="draw the other candidates beside the kernel there; .svg, .png or .pdf",
    )


def _picture_path(name: str) -> Path:
    """The file; ``kernels benchmark`` takes a name without an ending."""
    path = Path(name)
    return path if path.suffix in _PICTURES else path.with_name(f"{path.name}.svg")


def _settings(arguments: argparse.Namespace, *, graphs: bool = True) -> Settings:
    """How to measure, by the command line.

    Raises:
        UsageError: the device has no such mode, or the rounds are too few.
    """
    from kernforge.bench import stats, workload  # noqa: PLC0415

    device = arguments.device or _device()
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
    return workload.Settings(device=device, modes=modes, most=arguments.rounds, seed=arguments.seed)


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _bench(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench import classes, profile, project, report  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    for path in filter(None, (arguments.out, arguments.html, arguments.visual)):
        options.can_write(path)
    _can_draw(arguments)
    before = report.stored(arguments.baseline) if arguments.baseline else None
    request = None
    if classes.only_classes(arguments.project):
        measured = _run_classes(arguments, console)
    else:
        settings = _settings(arguments)
        request = _request(arguments)
        measured = project.measure(request, settings, console.note)
    slower = report.behind(measured, arguments.allow)
    if before is not None:
        slower += report.regressions(measured, before, arguments.allow, arguments.workload)
    document = report.document(measured, slower)
    _write(arguments.out, document)
    console.result(document, report.text(measured))
    if arguments.html:
        from kernforge.bench import plot  # noqa: PLC0415 - matplotlib

        shown = report.page(measured, plot.pictures(measured), slower)
        files.write_atomic(arguments.html, shown)
    _draw(arguments, measured)
    if arguments.profile and request and not measured.partial:
        names = tuple(arguments.candidate or ("kernel",))
        for text in profile.lines(measured, request, names, console.note):
            console.note(text)
    _conclude(measured, slower)


def _benchmark(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench import classes, published, report  # noqa: PLC0415

    for path in filter(None, (arguments.out, arguments.visual)):
        options.can_write(path)
    _can_draw(arguments)
    settings = _settings(arguments, graphs=False)
    repo = _repo(arguments, "cpu" if settings.device == "cpu" else None)
    kernels = classes.load_all(
        repo.kernel,
        arguments.against,
        arguments.registry,
        settings,
        trust=arguments.trust_remote_code,
    )
    measured = classes.measure(repo.root, kernels, settings, console.note, arguments.workload)
    document = published.payload(
        measured,
        kernel_id=repo.id,
        scripts_sha=published.sha_of(classes.scripts(repo.root)),
    )
    _write(arguments.out, document)
    console.result(document, report.text(measured))
    _draw(arguments, measured)
    _conclude(measured, [])


def _conclude(measured: Report, slower: list[str]) -> None:
    """End with the exit code of what came out."""
    from kernforge.bench import report  # noqa: PLC0415

    if measured.partial:
        raise KeyboardInterrupt
    if refused := report.refusals(measured) + slower:
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _can_draw(arguments: argparse.Namespace) -> None:
    """Say before anything is measured that charts need matplotlib."""
    if arguments.visual or getattr(arguments, "html", None):
        import matplotlib as mpl  # noqa: F401, PLC0415 - a missing module names the extra


def _draw(arguments: argparse.Namespace, measured: Report) -> None:
    if arguments.visual:
        from kernforge.bench import plot  # noqa: PLC0415
        from kernforge.system import files  # noqa: PLC0415

        files.write_atomic(arguments.visual, plot.draw(measured, arguments.visual))


def _write(path: Path | None, document: dict[str, Any]) -> None:
    from kernforge.system import files  # noqa: PLC0415

    if path:
        files.write_atomic(path, json.dumps(document, indent=1) + "\n")


def _request(arguments: argparse.Namespace) -> BenchRequest:
    """A project's own workloads and candidates."""
    from kernforge.bench import project, workload  # noqa: PLC0415

    return project.BenchRequest(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        eager=not arguments.no_eager,
        sizes=tuple(workload.sizes(arguments.sizes)) if arguments.sizes else (),
        device=arguments.device or _device(),
    )


def _run_classes(arguments: argparse.Namespace, console: Console) -> Report:
    """Measure a project's scripts of the hub's form."""
    from kernforge.bench import classes  # noqa: PLC0415

    kernel = _kernel(arguments)
    if kernel is None:
        raise UsageError(
            f"{arguments.project} has no build/ to measure",
            hint="kernforge build first, or name another directory with --build-dir",
        )
    if arguments.sizes or arguments.profile:
        raise UsageError(
            "the hub's classes have no sizes, and are not profiled",
            hint="leave --sizes and --profile out, or write benchmarks/workloads.py",
        )
    settings = _settings(arguments, graphs=False)
    kernels = classes.load_all(
        str(kernel.absolute()), arguments.against, arguments.registry, settings, trust=False
    )
    project = arguments.project.absolute()
    return classes.measure(project, kernels, settings, console.note, arguments.workload)


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


def _repo(arguments: argparse.Namespace, backend: str | None) -> Repo:
    from kernforge.bench import published  # noqa: PLC0415

    environment: Environment = arguments.environment
    trusted: bool = arguments.trust_remote_code
    directory = Path(arguments.repo)
    if directory.is_dir():
        if arguments.version or arguments.revision:
            raise UsageError(
                f"{directory} is a directory: it has no published versions",
                hint="leave --version and --revision out, or name OWNER/NAME",
            )
        return published.local(directory, environment, backend=backend, trusted=trusted)
    repo_id, version, revision = published.asked(
        arguments.repo, arguments.version, arguments.revision
    )
    return published.published(
        options.registry(arguments),
        environment,
        repo_id,
        version,
        revision,
        backend=backend,
        trusted=trusted,
    )

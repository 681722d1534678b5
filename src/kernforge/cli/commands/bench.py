# SPDX-License-Identifier: Apache-2.0
"""Commands that measure: bench, profile, benchmark."""

from __future__ import annotations

import dataclasses
import json
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError, page
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse

    from kernforge.bench.engine.workload import Settings
    from kernforge.bench.hub.repository import Repo
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment

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
    _add_bench(verbs)
    _add_profile(verbs)
    _add_benchmark(verbs)


def _add_bench(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _bench, "bench")
    options.add_project(verb)
    options.add_build_dir(verb)
    options.add_repeated(
        verb,
        "--against",
        "also measure this published version, or the built kernel of this directory",
        metavar="OWNER/NAME@vN",
    )
    options.add_registry(verb)
    verb.add_argument(
        "--sizes",
        metavar="2^10:2^30[:STEP]",
        help="measure the project's sized(elements) at these powers of two, or at 1000,2^20",
    )
    options.add_flag(
        verb,
        "--hub",
        "measure benchmarks/benchmark*.py, as `kernforge benchmark` does (default where there "
        "is no benchmarks/workloads.py)",
    )
    options.add_flag(verb, "--no-eager", "leave torch eager and torch.compile out")
    _add_measuring(verb)
    verb.add_argument(*("-o", "--out"), type=Path, help="write the result there, as JSON")
    verb.add_argument("--html", type=Path, help="write one self-contained page there")
    _add_visual(verb)
    verb.add_argument("--baseline", type=Path, help="a stored result to compare with")
    verb.add_argument(
        "--allow", type=float, default=0.05, help="share by which a median may grow (default: 0.05)"
    )


def _add_profile(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _profile, "profile")
    options.add_project(verb)
    options.add_build_dir(verb)
    options.add_repeated(verb, "--workload", "only this one")
    options.add_repeated(
        verb,
        "--candidate",
        "profile this one, named as in the tables of `kernforge bench`; may be repeated "
        "(default: kernel)",
    )
    verb.add_argument(
        "--tool",
        choices=("auto", "ncu", "torch"),
        default="auto",
        help="what counts: ncu (Nsight Compute); torch (torch.profiler, that is CUPTI: times and "
        "launches, no counters); the first that can (default)",
    )
    verb.add_argument(*("-o", "--out"), type=Path, help="write the profile there, as JSON")


def _add_benchmark(verbs: options.Verbs) -> None:
    verb = options.add_verb(verbs, _benchmark, "benchmark")
    verb.add_argument(
        "repo", metavar="REPO", help="OWNER/NAME@v1, OWNER/NAME@REVISION, or a directory"
    )
    verb.add_argument("--version", help="1, 1.2.3 or bounds, of a published kernel")
    verb.add_argument(
        "--revision", "--branch", help="a branch, tag or commit of a published kernel"
    )
    options.add_registry(verb)
    options.add_repeated(
        verb,
        "--against",
        "run the same classes with this published version, or this directory's, too",
        metavar="OWNER/NAME@vN",
    )
    _add_measuring(verb)
    options.add_flag(verb, "--no-reference", "do not time the verify_ methods")
    verb.add_argument(
        *("-o", "--out", "--output"),
        type=Path,
        help="write the result there: the JSON of `kernels benchmark`, and more",
    )
    _add_visual(verb)
    options.add_flag(verb, "--trust-remote-code", "load it, whoever published it")


def _add_visual(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--visual",
        metavar="FILE.svg",
        type=_svg_path,
        help="draw the other candidates beside the kernel there, with their intervals",
    )


def _svg_path(name: str) -> Path:
    """The file; ``kernels benchmark`` takes a name without an ending."""
    path = Path(name)
    return path if path.suffix == ".svg" else path.with_name(f"{path.name}.svg")


def _draw(arguments: argparse.Namespace, document: dict[str, Any], name: str) -> None:
    from kernforge.bench import picture  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    if arguments.visual:
        shown = picture.svg(document, title=f"{name} beside other implementations")
        files.write_atomic(arguments.visual, shown)


def _add_measuring(verb: argparse.ArgumentParser) -> None:
    """Add how to measure."""
    verb.add_argument("--device", choices=("cpu", "cuda"), help="default: cuda where there is one")
    verb.add_argument(
        "--mode", action="append", help="cold, hot, launch, graph or graph-hot (default: all)"
    )
    options.add_repeated(verb, "--workload", "only this one")
    verb.add_argument(
        "--width", type=float, default=0.02, help="interval wanted, of the median (default: 0.02)"
    )
    verb.add_argument(
        "--rounds", type=options.positive, default=40, help="at most; 6 or more (default: 40)"
    )
    verb.add_argument(
        "--processes",
        type=options.positive,
        default=1,
        help="fresh processes of each candidate: 1, or 6 and more to rank candidates that are close; "
        "of several, each is one sample (default: 1)",
    )
    verb.add_argument("--seed", type=int, default=0, help="repeat the order and inputs of a run")


def _settings(arguments: argparse.Namespace, *, graphs: bool = True) -> Settings:
    """How to measure, by the command line.

    Args:
        graphs: whether the candidates can be replayed as CUDA graphs.

    Raises:
        UsageError: the device has no such mode, or the rounds are too few.
    """
    from kernforge.bench.engine import stats, workload  # noqa: PLC0415

    device = arguments.device or _device()
    known = tuple(m for m in workload.modes_of(device) if graphs or m not in workload.GRAPHS)
    modes = tuple(arguments.mode or known)
    if unknown := [mode for mode in modes if mode not in known]:
        raise UsageError(f"{device} has no mode {unknown[0]}", hint=f"it has {', '.join(known)}")
    if arguments.rounds < stats.FEWEST:
        raise UsageError(
            f"--rounds {arguments.rounds}: the median of fewer than {stats.FEWEST} rounds has "
            "no 95 % interval",
            hint=f"--rounds {stats.FEWEST} is the least",
        )
    if 1 < arguments.processes < stats.FEWEST:
        raise UsageError(
            f"--processes {arguments.processes}: fewer than {stats.FEWEST} samples have no "
            "95 % interval",
            hint=f"--processes {stats.FEWEST} is the least but 1",
        )
    found = workload.Settings(device=device, modes=modes)
    return dataclasses.replace(
        found,
        width=arguments.width,
        most=arguments.rounds,
        least=min(found.least, arguments.rounds),
        seed=arguments.seed,
        processes=arguments.processes,
    )


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _bench(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench import api as bench  # noqa: PLC0415
    from kernforge.bench import html, text  # noqa: PLC0415
    from kernforge.bench.hub import run  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    for path in filter(None, (arguments.out, arguments.html, arguments.visual)):
        options.can_write(path)
    before = _stored(arguments.baseline) if arguments.baseline else None
    last = before or _last(arguments.out)
    classes = arguments.hub or run.only_classes(arguments.project)
    try:
        document = _run_classes(arguments, console) if classes else _run(arguments, console)
    except bench.PartialResult as partial:
        # Here and not after it: what is interrupted ends when its handlers end.
        if partial.document["workloads"]:
            _show(arguments, console, partial.document, classes=classes)
        raise
    slower = [] if classes else text.behind(document, allowed=arguments.allow)
    if before is not None:
        slower += text.regressions(
            document, before, allowed=arguments.allow, only=arguments.workload
        )
    document["regressions"] = slower
    _show(arguments, console, document, classes=classes)
    if arguments.html:
        shown = last if last and text.comparable(document, last) else None
        files.write_atomic(arguments.html, html.html(document, shown))
    _draw(arguments, document, arguments.project.resolve().name)
    if refused := run.refusals(document) + slower:
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _profile(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench.profiler import api as profiler  # noqa: PLC0415
    from kernforge.bench.profiler import text  # noqa: PLC0415

    if arguments.out:
        options.can_write(arguments.out)
    request = profiler.ProfileRequest(
        project=arguments.project,
        kernel=_kernel(arguments),
        only=tuple(arguments.workload),
        candidates=tuple(arguments.candidate or ("kernel",)),
        tool=arguments.tool,
    )
    document = profiler.run(request, console.note)
    _write(arguments.out, document)
    console.result(document, "\n".join(text.lines(document)))
    if refused := profiler.refusals(document):
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _show(
    arguments: argparse.Namespace, console: Console, document: dict[str, Any], *, classes: bool
) -> None:
    """Write and print what was measured."""
    from kernforge.bench import text  # noqa: PLC0415

    if not classes:
        document["table"] = text.summary(document)
    _write(arguments.out, document)
    console.result(document, _classes_text(document) if classes else _text(document))


def _write(path: Path | None, document: dict[str, Any]) -> None:
    from kernforge.system import files  # noqa: PLC0415

    if path:
        files.write_atomic(path, json.dumps(document, indent=2) + "\n")


def _run(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure a project's own workloads."""
    from kernforge.bench import api as bench  # noqa: PLC0415
    from kernforge.bench.engine import contender, workload  # noqa: PLC0415

    settings = _settings(arguments)
    for each in arguments.against:  # a version that is missing is an error before the first call
        backend = contender.backend_of(settings.device)
        contender.fetch_kernel(each, registry=arguments.registry, backend=backend)
    request = bench.BenchRequest(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        eager=not arguments.no_eager,
        sizes=tuple(workload.sizes(arguments.sizes)) if arguments.sizes else (),
    )
    return bench.run(
        bench.workloads(request),
        bench.candidates(request),
        settings,
        console.note,
        project=arguments.project.resolve().name,
    )


def _run_classes(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """Measure a project's scripts of the hub's form."""
    from kernforge.bench.hub import run  # noqa: PLC0415

    kernel = _kernel(arguments)
    if kernel is None:
        raise UsageError(
            f"{arguments.project} has no build/ to measure",
            hint="kernforge build first, or name another directory with --build-dir",
        )
    if arguments.html or arguments.sizes:
        raise UsageError(
            "the hub's classes have neither a roof to draw nor sizes",
            hint="leave --html and --sizes out, or write benchmarks/workloads.py",
        )
    request = run.HubBenchRequest(
        repo=arguments.project.absolute(),
        kernel=str(kernel.absolute()),
        registry=arguments.registry,
        against=tuple(arguments.against),
        only=tuple(arguments.workload),
        reference=not arguments.no_eager,
    )
    return run.run(request, _settings(arguments, graphs=False), console.note)


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


def _last(path: Path | None) -> Any:
    """The result of a run before this one; None when the file is something else."""
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
        raise UsageError(f"{path} is not a stored result", hint="kernforge bench --out writes one")
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
    parts.append("\n".join(("", *text.unsure(document), _RATE, _ROOF)))
    return "\n".join(parts)


def _how(case: dict[str, Any], mode: str) -> str:
    """What a mode is, with the calls that one time is of."""
    from kernforge.bench import text  # noqa: PLC0415

    found = [row["in_a_row"] for row in case["results"] if row["mode"] == mode]
    times = f", {max(found)} calls a time" if max(found, default=1) > 1 else ""
    return f"{text.MODES[mode]}{times}"


def _benchmark(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.bench import api as bench  # noqa: PLC0415
    from kernforge.bench.hub import payload, repository, run  # noqa: PLC0415

    for path in filter(None, (arguments.out, arguments.visual)):
        options.can_write(path)
    settings = _settings(arguments, graphs=False)
    repo = _repo(arguments, "cpu" if settings.device == "cpu" else None)
    request = run.HubBenchRequest(
        repo=repo.root,
        kernel=repo.kernel,
        registry=arguments.registry,
        trust=arguments.trust_remote_code,
        against=tuple(arguments.against),
        only=tuple(arguments.workload),
        reference=not arguments.no_reference,
    )

    def show(document: dict[str, Any]) -> None:
        found = payload.payload(
            document,
            device=settings.device,
            kernel_id=repo.id,
            scripts_sha=repository.sha_of(run.scripts(repo.root)),
            system=f"{platform.system()} {platform.release()}",
            cpu=platform.processor() or platform.machine() or "Unknown",
        )
        _write(arguments.out, found)
        _draw(arguments, document, Path(arguments.repo).name)
        console.result(found, _classes_text(document))

    try:
        document = run.run(request, settings, console.note)
    except bench.PartialResult as partial:
        if partial.document["workloads"]:
            show(partial.document)
        raise
    show(document)
    if refused := run.refusals(document):
        raise CheckError("\n".join(refused), hint=f"see {page('explanation/honest-benchmarks')}")


def _repo(arguments: argparse.Namespace, backend: str | None) -> Repo:
    from kernforge.bench.hub import repository  # noqa: PLC0415

    environment: Environment = arguments.environment
    trusted: bool = arguments.trust_remote_code
    directory = Path(arguments.repo)
    if directory.is_dir():
        if arguments.version or arguments.revision:
            raise UsageError(
                f"{directory} is a directory: it has no published versions",
                hint="leave --version and --revision out, or name OWNER/NAME",
            )
        return repository.local(directory, environment, backend=backend, trusted=trusted)
    repo_id, version, revision = repository.asked(
        arguments.repo, arguments.version, arguments.revision
    )
    return repository.published(
        options.registry(arguments),
        environment,
        repo_id,
        version,
        revision,
        backend=backend,
        trusted=trusted,
    )


def _classes_text(document: dict[str, Any]) -> str:
    """The table of a document of classes."""
    from kernforge.bench import text as bench_text  # noqa: PLC0415
    from kernforge.bench.hub import payload  # noqa: PLC0415

    table = tables.table(payload.rows(document), head=payload.HEAD)
    return "\n".join([*bench_text.conditions(document), "", table])

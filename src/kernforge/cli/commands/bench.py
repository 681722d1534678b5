# SPDX-License-Identifier: Apache-2.0
"""``kernforge bench``: measure a project's kernel beside its peers, or a published kernel."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from kernforge.bench import profile, project, report, stats, workload
from kernforge.bench.project import BenchRequest
from kernforge.bench.run import measure
from kernforge.bench.workload import Settings
from kernforge.errors import CheckError, StorageError, UsageError
from kernforge.system import machine, own_files
from kernforge.system.console import Console
from kernforge.system.tables import counted, page


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Measure the candidates, and write and draw the results."""
    home = arguments.environment.home
    _check_places(arguments, home)
    arguments.device = arguments.device or _device()
    settings, request = _settings(arguments), _request(arguments)
    work = project.work(request, console.note)
    console.note(counted(len(work), "workload"))
    measured = measure(work, settings, console.note, arguments.project.resolve().name)
    document = report.document(measured)
    if arguments.out:
        own_files.write(arguments.out, json.dumps(document, indent=1) + "\n", home)
    console.result(document, report.text(measured))
    if arguments.visual:
        from kernforge.bench import plot  # noqa: PLC0415 - matplotlib

        own_files.write(arguments.visual, plot.draw(measured, arguments.visual.suffix), home)
    if arguments.profile and not measured.partial:
        for text in profile.lines(measured, request, console.note):
            console.note(text)
    if measured.partial:
        raise KeyboardInterrupt
    if errors := report.refusals(measured) + document["regressions"]:
        raise CheckError("\n".join(errors), hint=f"see {page('explanation/honest-benchmarks')}")


def _device() -> str:
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _check_places(arguments: argparse.Namespace, home: Path) -> None:
    """Check before any measurement that the results can be written and drawn."""
    for path in filter(None, (arguments.out, arguments.visual)):
        missing = "" if path.parent.exists() else f"{path.parent} does not exist"
        trouble = "it is a directory" if path.is_dir() else missing
        if trouble := trouble or machine.room(path.parent)[1]:
            raise StorageError(
                f"{path} cannot be written: {trouble}", hint="name a file in a writable directory"
            )
        own_files.refuse(path, home)
    if arguments.visual:
        from kernforge.bench import plot  # noqa: PLC0415 - matplotlib; without it an extra is named

        if arguments.visual.suffix not in plot.KINDS:
            raise UsageError(
                f"{arguments.visual} has an unknown extension",
                hint=f"use one of {', '.join(plot.KINDS)}",
            )


def _settings(arguments: argparse.Namespace) -> Settings:
    """The settings of the measurement."""
    device = arguments.device
    known = workload.MODES[device]
    if not project.has_workloads(arguments.project):  # a graph cannot have a class's new inputs
        known = tuple(mode for mode in known if mode != "graph")
    modes = tuple(arguments.mode) or known
    if unknown := [mode for mode in modes if mode not in known]:
        raise UsageError(f"{device} has no mode {unknown[0]}", hint=f"it has {', '.join(known)}")
    if arguments.rounds < stats.FEWEST:
        raise UsageError(
            f"--rounds {arguments.rounds}: the median of fewer than {stats.FEWEST} rounds has "
            "no 95 % interval",
            hint=f"use --rounds {stats.FEWEST} or more",
        )
    return Settings(device=device, modes=modes, most=arguments.rounds)


def _request(arguments: argparse.Namespace) -> BenchRequest:
    """The kernel, its workloads and what it is measured against."""
    return BenchRequest(
        project=arguments.project,
        kernel=_kernel(arguments),
        against=tuple(arguments.against),
        registry=arguments.registry,
        only=tuple(arguments.workload),
        named=tuple(arguments.candidate) or None,
        sizes=tuple(workload.sizes(arguments.sizes)) if arguments.sizes else (),
        device=arguments.device,
        trusted=arguments.trust_remote_code,
    )


def _kernel(arguments: argparse.Namespace) -> Path | None:
    """The directory of the built kernel; None for a project that needs no build."""
    built: Path = arguments.build_dir or arguments.project / "build"
    if built.is_dir():
        return built
    if arguments.build_dir or (arguments.project / "build.toml").is_file():
        raise UsageError(
            f"there is no directory {built.absolute()}: the kernel is not built",
            hint="run `kernforge build`, or name a built kernel with --build-dir",
        )
    return None

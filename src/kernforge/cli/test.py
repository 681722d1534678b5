# SPDX-License-Identifier: Apache-2.0
"""The command that tests: test."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, UntestedError

if TYPE_CHECKING:
    from kernforge.system.console import Report
    from kernforge.testing.project_tests import Tested, Workers


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(
        verbs,
        _test,
        "test",
        "build what fits this machine and run the project's tests on it",
        "--variant 'torch-stable-abi*-cpu-*' --pytest=-k --pytest=views",
    )
    options.add_project(verb)
    verb.add_argument(
        "--variant",
        action="append",
        default=[],
        help="a name or a pattern; may be repeated (default: the best for the CPU and for the GPU)",
    )
    verb.add_argument(
        "--kernel",
        type=Path,
        metavar="DIR",
        help="build nothing: test what was built there, a directory of variants or one (default: "
        "build)",
    )
    verb.add_argument(
        "--pytest",
        action="append",
        default=[],
        metavar="ARGUMENT",
        help="an argument for pytest, as --pytest=-x; may be repeated",
    )
    verb.add_argument(
        "--scheduler",
        metavar="ADDRESS",
        help="build here, and test on a worker of this Dask scheduler, as tcp://farm:8786",
    )
    verb.add_argument(
        "--worker-resource",
        action="append",
        default=[],
        type=_resource,
        metavar="NAME=AMOUNT",
        help="what that worker must offer, as GPU=1; may be repeated",
    )
    options.add_toolchain(verb)
    options.add_sandbox(verb)


def _resource(text: str) -> tuple[str, float]:
    """Argument type: ``NAME=AMOUNT``."""
    name, _, amount = text.partition("=")
    try:
        return name, float(amount)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=AMOUNT") from error


def _test(arguments: argparse.Namespace, report: Report) -> None:
    from kernforge.build import workspace  # noqa: PLC0415
    from kernforge.testing import project_tests  # noqa: PLC0415

    root = workspace.read_project(arguments.project).root
    workers = None
    if arguments.scheduler:
        workers = project_tests.Workers(arguments.scheduler, dict(arguments.worker_resource))
    try:
        built = _built(arguments, report, workers)
        told = []
        for name, path in built.items():
            report.note(f"testing {name}")
            if workers:
                sent = project_tests.parcel(root, path, arguments.pytest)
                told.append(workers.call(project_tests.unpack_and_test, sent))
            else:
                told.append(project_tests.run_variant(root, path, arguments.pytest))
    finally:
        if workers:
            workers.close()
    _say(told, report)


def _built(
    arguments: argparse.Namespace, report: Report, workers: Workers | None
) -> dict[str, Path]:
    """The variants to test: those that lie there already, or built now."""
    from kernforge.project import targets  # noqa: PLC0415
    from kernforge.testing import project_tests  # noqa: PLC0415

    def chosen(names: list[str]) -> list[str]:
        probe = project_tests.fitting
        fit = workers.call(probe, names) if workers else probe(names)
        return list(project_tests.chosen(names, fit))

    if arguments.kernel:
        there = project_tests.built_in(arguments.kernel, arguments.variant)
        return {n: there[n] for n in (there if arguments.variant else chosen(list(there)))}
    bench = options.bench(arguments, report)
    if arguments.variant:
        names = [one.name for one in targets.choose(bench.candidates, arguments.variant)]
    else:
        names = chosen([one.name for one in bench.candidates if one.target])
    return project_tests.build(bench.project.root, names, _passed_on(arguments))


def _passed_on(arguments: argparse.Namespace) -> list[str]:
    """The options that the build is to know."""
    words = ["--sandbox", arguments.sandbox]
    for name in ("cuda_home", "cuda_redist", "cuda_compiler"):
        if value := getattr(arguments, name):
            words += [f"--{name.replace('_', '-')}", str(value)]
    for name, path in arguments.depends:
        words += ["--depends", f"{name}={path}"] if name else []
    return words


def _say(told: list[Tested], report: Report) -> None:
    document = {
        "ok": all(one.ok and not one.idle for one in told),
        "variants": [
            {
                "variant": one.variant,
                "where": one.where,
                "seconds": round(one.wall_s, 3),
                "counts": one.counts,
                "tests": list(one.tests),
            }
            for one in told
        ],
    }
    lines = []
    for one in told:
        lines.append(one.output.rstrip())
        counts = ", ".join(f"{count} {name}" for name, count in one.counts.items() if count)
        lines.append(f"{one.variant} ({one.where}): {counts}")
    report.result(document, "\n".join(lines))
    idle = [f"{one.variant}: {one.idle}" for one in told if one.idle]
    if wrong := [one.variant for one in told if not one.ok]:
        raise CheckError(
            f"tests fail on {', '.join(wrong)}",
            hint="each failure above names the first element that differs, or what was broken",
        )
    if idle:
        raise UntestedError(
            f"nothing was tested, every test was skipped on {'; '.join(idle)}",
            hint="test where there is what they ask for (--scheduler ADDRESS --worker-resource GPU=1), "
            "or choose other tests",
        )

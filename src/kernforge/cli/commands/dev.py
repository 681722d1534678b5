# SPDX-License-Identifier: Apache-2.0
"""Commands of the inner loop: dev, resources."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, UsageError
from kernforge.system import tables

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kernforge.dev.build import DevOptions
    from kernforge.dev.rounds import GoodBuild, Round
    from kernforge.dev.watch import Watcher
    from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _dev, "dev")
    options.add_project(verb)
    options.add_variants(verb, "the one for this process's torch")
    options.add_repeated(
        verb,
        "--arch",
        "compile for this GPU, such as 9.0; may be repeated (default: this machine's GPU)",
        type=options.capability,
    )
    options.add_flag(verb, "--once", "run one round; its result is the exit code")
    options.add_flag(verb, "--no-test", "run no tests")
    options.add_flag(verb, "--no-bench", "run no benchmark")
    options.add_pytest(verb)
    options.add_repeated(
        verb,
        "--workload",
        "measure this workload of benchmarks/workloads.py; may be repeated (default: the first)",
    )
    options.add_jobs(verb)
    options.add_toolchain(verb)
    options.add_sandbox(verb)

    verb = options.add_verb(verbs, _resources, "resources")
    options.add_built(verb, ", or an object or shared object")
    verb.add_argument(
        "--arch",
        type=_machine_code,
        help="only for this GPU, such as 9.0 (default: all)",
    )


def _machine_code(text: str) -> str:
    """Argument type: a compute capability without PTX, which has no registers yet."""
    if options.capability(text).endswith("+PTX"):
        raise argparse.ArgumentTypeError(
            f"{text}: the driver decides what PTX uses; write {text.removesuffix('+PTX')}"
        )
    return text


def _dev(arguments: argparse.Namespace, console: Console) -> int | None:
    from kernforge.dev import watch  # noqa: PLC0415
    from kernforge.dev.build import DevOptions  # noqa: PLC0415
    from kernforge.project import api as project  # noqa: PLC0415

    root = project.find(arguments.project)
    session = DevOptions(
        root=root,
        place=watch.place(root, arguments.environment.home),
        environment=arguments.environment,
        variants=tuple(arguments.variant),
        arch=tuple(arguments.arch),
        local_parts=options.local_parts(arguments),
        sandbox=arguments.sandbox,
        jobs=arguments.jobs,
        test=not arguments.no_test,
        bench=not arguments.no_bench,
        pytest=tuple(arguments.pytest),
        workloads=tuple(arguments.workload),
    )
    plain = arguments.json or arguments.quiet or not sys.stdout.isatty()
    if plain:
        return _follow(session, _Lines(console), once=arguments.once)
    from kernforge.dev.view import View  # noqa: PLC0415 - a terminal's

    view = View()
    with view:
        return _follow(session, view, once=arguments.once)


def _follow(session: DevOptions, watcher: Watcher, *, once: bool) -> int | None:
    from kernforge.dev import watch  # noqa: PLC0415

    if once:
        return watch.once(session, watcher)
    watch.watch(session, watcher)
    return None


class _Lines:
    """Prints a session as lines of JSON or of text."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._state = ""

    def state(self, state: str, words: str) -> None:
        """Print the begin of a stage."""
        if state != self._state:
            self._state = state
            self._console.note(f"{state} {words}".strip())

    def round(self, result: Round, good: GoodBuild | None) -> None:
        """Print the result of a round."""
        from kernforge.dev import report as dev_report  # noqa: PLC0415

        self._console.line(dev_report.document(result, good), dev_report.text(result, good))


def _resources(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.binary import kernel_usage  # noqa: PLC0415

    files = sorted(_binaries(arguments.built))
    if not files:
        raise UsageError(
            f"{arguments.built} has no shared object", hint="run `kernforge build` to make one"
        )
    documents, lines = [], []
    for path in files:
        try:
            kernels = kernel_usage.read(path.read_bytes(), arch=arguments.arch or "")
        except CheckError as error:
            raise CheckError(f"{path}: {error.message}", hint=error.hint) from error
        documents.append({"file": str(path), "kernels": [*map(kernel_usage.document, kernels)]})
        table = (
            tables.table(kernel_usage.rows(kernels), head=kernel_usage.HEAD)
            if kernels
            else "no kernels"
        )
        lines.append(f"{path}\n{table}")
    console.result(documents, "\n\n".join(lines))


def _binaries(what: Path) -> Iterator[Path]:
    from kernforge.artifact import directories  # noqa: PLC0415

    if what.is_file():
        yield what
        return
    # Of a project only what was built: an environment beside it has libraries too.
    for variant in directories.variants(what):
        yield from (path for path in variant.rglob("*.so") if path.is_file())

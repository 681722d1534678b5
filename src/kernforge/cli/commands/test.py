# SPDX-License-Identifier: Apache-2.0
"""The command that runs a project's tests: test."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.errors import CheckError, KernforgeError, StorageError, UntestedError
from kernforge.system import extras
from kernforge.toolchain import lockfile

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.builder.workspace import Workspace
    from kernforge.project.targets import Target
    from kernforge.system.console import Console
    from kernforge.testing.project_tests import Tested


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _test, "test")
    options.add_project(verb)
    options.add_variants(verb, "the best for the CPU and for the GPU")
    verb.add_argument(
        "--build-dir",
        type=Path,
        metavar="DIR",
        help="test what is built there: a variant, or a directory of variants "
        "(default: build it first)",
    )
    options.add_pytest(verb)
    options.add_sandbox(verb)


def _test(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project.api import read_project  # noqa: PLC0415
    from kernforge.testing import project_tests  # noqa: PLC0415

    project = read_project(arguments.project)
    extras.require(("pytest",), "this command")  # now, and not when everything is compiled
    results = []
    for name, path in _variants(arguments, console).items():
        with console.working(f"testing {name}"):
            tested = project_tests.run_variant(
                project.root,
                path,
                arguments.pytest,
                environment=arguments.environment,
                repo_id=project.manifest.general.hub.repo_id,
            )
        results.append(tested)
    _print_results(results, console)


def _variants(arguments: argparse.Namespace, console: Console) -> Mapping[str, Path]:
    """The variants to test, by name: existing ones, or those that are built now."""
    from kernforge.project import targets as project_targets  # noqa: PLC0415
    from kernforge.testing import project_tests  # noqa: PLC0415

    def chosen(names: list[str]) -> list[str]:
        return list(project_tests.chosen(names, project_tests.fitting(names)))

    if arguments.build_dir:
        variants = project_tests.built_in(arguments.build_dir, arguments.variant)
        return {n: variants[n] for n in (variants if arguments.variant else chosen(list(variants)))}
    shared = arguments.environment.kernforge_shared_store
    workspace = options.workspace(arguments, console, shared=shared)
    names = arguments.variant or chosen([c.name for c in workspace.candidates if c.target])
    return _build(workspace, project_targets.choose(workspace.candidates, names), arguments)


def _build(
    workspace: Workspace, targets: tuple[Target, ...], arguments: argparse.Namespace
) -> Mapping[str, Path]:
    """Build and check variants.

    Raises:
        KernforgeError: the error of the build; the message adds that nothing was tested.
    """
    from kernforge.builder import api as build  # noqa: PLC0415
    from kernforge.check.finding import refuse_errors  # noqa: PLC0415
    from kernforge.cli import formats  # noqa: PLC0415
    from kernforge.system.console import Console  # noqa: PLC0415

    # The error contains the output of compilers.
    events = Console(quiet=arguments.quiet, failures=False)
    request = build.BuildRequest(
        targets=targets, events=events, sandbox=arguments.sandbox, check=True
    )
    lines: list[str] = []
    try:
        result = build.build_project(workspace, request)
        failures = result.outcome.failures
        lines += [f"{failure.action.title}:\n{failure.output}" for failure in failures]
        lines += [formats.finding_text(f) for f in result.findings if f.severity == "error"]
        result.refuse_failures()
        refuse_errors(result.findings)
    except KernforgeError as error:
        hint = error.hint
        root = str(workspace.project.root)
        in_project = root in error.message and lockfile.FILE_NAME not in error.message
        if isinstance(error, StorageError) and in_project:
            hint = (
                "build to another directory with `kernforge build --build-dir DIR`, and test it "
                "with `kernforge test --build-dir DIR`"
            )
        lines = ["the project cannot be built, so it is not tested:", *lines, error.message]
        raise type(error)("\n".join(lines), hint=hint) from error
    return result.variants


def _print_results(results: list[Tested], console: Console) -> None:
    document = {
        "ok": all(result.ok and not result.skip_reason for result in results),
        "variants": [
            {
                "variant": result.variant,
                "seconds": round(result.wall_s, 3),
                "counts": result.counts,
                "tests": list(result.tests),
            }
            for result in results
        ],
    }
    lines = []
    for result in results:
        lines.append(result.output.rstrip())
        counts = ", ".join(f"{count} {name}" for name, count in result.counts.items() if count)
        lines.append(f"{result.variant}: {counts}")
    console.result(document, "\n".join(lines))
    idle = [f"{result.variant}: {result.skip_reason}" for result in results if result.skip_reason]
    if wrong := [result.variant for result in results if not result.ok]:
        raise CheckError(
            f"tests fail on {', '.join(wrong)}",
            hint="each failure above names the first wrong element or the failed check",
        )
    if idle:
        raise UntestedError(
            f"nothing was tested, every test was skipped on {'; '.join(idle)}",
            hint="test on a machine that the tests need, or choose other tests",
        )

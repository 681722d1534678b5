# SPDX-License-Identifier: Apache-2.0
"""``kernforge test``: the tests of a project, on built variants."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

from kernforge.builder import api as build
from kernforge.check.finding import refuse_errors
from kernforge.cli import options
from kernforge.cli.commands.build import problems
from kernforge.errors import CheckError, UntestedError
from kernforge.project import targets
from kernforge.project.api import read_project
from kernforge.system import extras
from kernforge.system.console import Console
from kernforge.testing import project_tests
from kernforge.testing.project_tests import Tested


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Test each variant, which is built first unless ``--build-dir`` has it."""
    project = read_project(arguments.project)
    extras.require(("pytest",), "this command")  # now, and not when everything is compiled
    results = []
    variants, uncompiled = _variants(arguments, console)
    for name, path in variants.items():
        with console.working(f"testing {name}"):
            tested = project_tests.run_variant(
                project.root,
                path,
                arguments.pytest,
                environment=arguments.environment,
                repo_id=project.manifest.general.hub.repo_id,
            )
        results.append(tested)
    _print_results(results, uncompiled, console)


_Uncompiled: TypeAlias = "Mapping[str, Sequence[str]]"


def _variants(
    arguments: argparse.Namespace, console: Console
) -> tuple[Mapping[str, Path], _Uncompiled]:
    """The variants to test, existing or built now, and the sources that were not compiled."""
    if arguments.build_dir:
        variants = project_tests.built_in(arguments.build_dir, arguments.variant)
        names = list(variants) if arguments.variant else project_tests.chosen(list(variants))
        return {name: variants[name] for name in names}, {}
    workspace = options.workspace(arguments, console)
    buildable = [c.name for c in workspace.candidates if c.target]
    names = arguments.variant or list(project_tests.chosen(buildable))
    request = build.BuildRequest(
        targets=targets.choose(workspace.candidates, names),
        events=console,
        sandbox=arguments.sandbox,
        check=True,
        every_source=True,
    )
    result = build.build_project(workspace, request)
    errors = [str(finding) for finding in result.findings if finding.severity == "error"]
    if result.left_out or errors:
        console.result({"ok": False, **problems(result)}, "\n".join(errors))
    result.refuse_failures()
    refuse_errors(result.findings)
    return result.variants, result.uncompiled


def _print_results(results: list[Tested], uncompiled: _Uncompiled, console: Console) -> None:
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
        "uncompiled": uncompiled,
    }
    lines = []
    for result in results:
        counts = ", ".join(f"{count} {name}" for name, count in result.counts.items() if count)
        lines += [result.output.rstrip(), f"{result.variant}: {counts}"]
    lines += build.uncompiled_notes(uncompiled)
    console.result(document, "\n".join(lines))
    if wrong := [result.variant for result in results if not result.ok]:
        raise CheckError(
            f"tests fail on {', '.join(wrong)}",
            hint="each failure above names the first wrong element or the failed check",
        )
    if idle := [f"{each.variant}: {each.skip_reason}" for each in results if each.skip_reason]:
        raise UntestedError(
            f"nothing was tested, every test was skipped on {'; '.join(idle)}",
            hint="test on a machine that the tests need, or choose other tests",
        )

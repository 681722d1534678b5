# SPDX-License-Identifier: Apache-2.0
"""``kernforge check``: check that a build runs on users' machines, and show its resources."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path

from kernforge.artifact import directories
from kernforge.artifact.directories import BuiltVariant
from kernforge.artifact.integrity import read_file
from kernforge.binary import kernel_usage
from kernforge.check import api as check
from kernforge.check.finding import Finding, refuse_errors
from kernforge.cli import options
from kernforge.errors import CheckError, IntegrityError, UsageError
from kernforge.project import api as projects
from kernforge.system import untrusted
from kernforge.system.console import Console
from kernforge.system.process import run as run_program
from kernforge.system.tables import table


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Check variants of a build or of a published kernel, or show the resources of a build."""
    if arguments.resources:
        _show_resources(Path(arguments.what), console)
        return
    kernel = options.kernel(arguments)
    # Code of a published kernel is not imported.
    python = None if kernel.answer else sys.executable
    names = options.matching(arguments.variant, kernel.names, arguments.what)
    findings = [
        each
        for name in names
        for each in check.check_variant(kernel.location(name).path, run=run_program, python=python)
    ]
    if kernel.answer is None:
        findings += _other_sources(Path(arguments.what), kernel.directories.values())
    text = "\n".join(map(str, findings)) or f"{arguments.what}: no problem was found"
    console.result([asdict(each) for each in findings], text)
    refuse_errors(findings)


def _other_sources(directory: Path, variants: Iterable[Path]) -> Iterator[Finding]:
    """A finding if the variants are built from different sources, or not from the project's."""
    identity = None
    if (directory / projects.MANIFEST).is_file():
        identity = projects.read_project(directory).sources.identity
    documents = {}
    for path in variants:
        with contextlib.suppress(FileNotFoundError, IntegrityError):  # a finding of the variant
            documents[path.name] = BuiltVariant.read(path).metadata
    if problem := directories.other_sources(documents, identity):
        hint = "build again (kernforge build), and remove variants that are no longer built"
        yield Finding("sources", directory.name or str(directory), problem, hint)


def _show_resources(what: Path, console: Console) -> None:
    """Print the resources of the kernels in shared objects."""
    # Only the variants of a project: a virtual environment in it has libraries too.
    roots = () if what.is_file() else directories.variants(what)
    libraries = {path: directories.link_root(each) for each in roots for path in each.rglob("*.so")}
    libraries |= {what: Path("/")} if what.is_file() else {}
    if not libraries:
        raise UsageError(f"{what} has no shared object", hint="run `kernforge build` to make one")
    documents, lines = [], []
    for path, root in sorted(libraries.items()):
        try:
            kernels = kernel_usage.read(read_file(path, within=root, most=untrusted.FILE))
        except CheckError as error:
            raise CheckError(f"{path}: {error.message}", hint=error.hint) from error
        documents.append({"file": str(path), "kernels": [*map(kernel_usage.document, kernels)]})
        rows = (
            table(kernel_usage.rows(kernels), head=kernel_usage.HEAD) if kernels else "no kernels"
        )
        lines.append(f"{path}\n{rows}")
    console.result(documents, "\n\n".join(lines))

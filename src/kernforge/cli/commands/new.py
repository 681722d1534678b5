# SPDX-License-Identifier: Apache-2.0
"""``kernforge new``: a new project."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project import scaffold
from kernforge.system.console import Console
from kernforge.system.tables import counted


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Write a project; with ``--here`` around what is there."""
    root: Path | None = arguments.path
    if arguments.here:
        _fill(root or Path(), arguments, console)
    elif root is None:
        raise UsageError(
            "the name of the project is missing", hint="`kernforge new my-kernel` makes one"
        )
    else:
        name = root.absolute().name
        jobs = _jobs(arguments, name, arguments.backends)
        files = [str(path) for path in scaffold.create(_files(arguments, name, jobs), root)]
        text = f"{root}: {counted(len(files), 'file')}\n{_next(root, jobs)}"
        console.result({"project": str(root), "files": files}, text)


def _fill(root: Path, arguments: argparse.Namespace, console: Console) -> None:
    if arguments.ci and (root / scaffold.MANIFEST).is_file():
        from kernforge.project.api import read_project  # noqa: PLC0415 - an extra

        general = read_project(root).manifest.general
        jobs = _jobs(arguments, general.name, general.backends)
        filled = scaffold.add_files(jobs, root)
    else:
        name = scaffold.name_for(root)
        jobs = _jobs(arguments, name, arguments.backends)
        filled = scaffold.fill(_files(arguments, name, jobs), root)
        if (root / "setup.py").is_file():
            console.note(
                f"{root / 'setup.py'}: its extensions are not part of the project; "
                "`kernforge adopt` makes a project of them"
            )
    for path in filled.kept:
        note = "; add build/ to it" if path.name == ".gitignore" else ""
        console.note(f"{path}: kept as it is{note}")
    written = [str(path) for path in filled.written]
    document = {"project": str(root), "files": written, "kept": [str(path) for path in filled.kept]}
    console.result(document, "\n".join([*written, _next(root, jobs)]))


def _files(arguments: argparse.Namespace, name: str, jobs: dict[str, str]) -> dict[str, str]:
    """The files of the project that the user asks for."""
    layout: scaffold.Layout = "full"
    if arguments.minimal or arguments.gradient:
        layout = "minimal" if arguments.minimal else "gradient"
    backends = tuple(arguments.backends)
    return scaffold.project_files(name, backends=backends, layout=layout, more=jobs)


def _jobs(arguments: argparse.Namespace, name: str, backends: Collection[str]) -> dict[str, str]:
    """What ``--ci`` adds to the project."""
    return scaffold.ci_files(arguments.ci, name, backends) if arguments.ci else {}


def _next(root: Path, jobs: Collection[str]) -> str:
    """What to do now."""
    if not jobs:
        return f"next: kernforge build {root}"
    workflow = next(path for path in jobs if path.endswith((".yml", ".yaml")))
    return (
        f"next: kernforge lock {root}, commit kernforge.lock, and set the variables that "
        f"{workflow} names"
    )

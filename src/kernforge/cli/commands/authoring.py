# SPDX-License-Identifier: Apache-2.0
"""Commands that write a project's files: new, init."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.system.tables import counted

if TYPE_CHECKING:
    import argparse

    from kernforge.project import scaffold
    from kernforge.project.scaffold import Layout
    from kernforge.system.console import Console


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _new, "new")
    verb.add_argument("name", help="lower-case letters, digits and dashes")
    verb.add_argument(
        "--dir",
        type=Path,
        default=Path(),
        help="parent directory of the project (default: current directory)",
    )
    _add_choices(verb)

    verb = options.add_verb(verbs, _init, "init")
    verb.add_argument(
        "directory", type=Path, nargs="?", default=Path(), help="default: current directory"
    )
    verb.add_argument("--name", help="the kernel's name (default: the directory's)")
    _add_choices(verb)


def _add_choices(verb: argparse.ArgumentParser) -> None:
    """Add what both ways to a new project let a user choose."""
    layouts = verb.add_mutually_exclusive_group()
    layouts.add_argument(
        "--minimal",
        dest="layout",
        action="store_const",
        const="minimal",
        default="full",
        help="only build.toml, a source, the binding, the Python package and a test",
    )
    layouts.add_argument(
        "--gradient",
        dest="layout",
        action="store_const",
        const="gradient",
        help="with a backward kernel that torch.autograd calls",
    )
    verb.add_argument(
        "--backends",
        nargs="+",
        default=["cuda", "cpu"],
        choices=["cuda", "cpu"],
        help="default: both",
    )
    verb.add_argument("--license", default="Apache-2.0", help="SPDX name (default: Apache-2.0)")


def _new(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import scaffold  # noqa: PLC0415

    root = arguments.dir / arguments.name
    layout: Layout = arguments.layout
    written = scaffold.scaffold(
        arguments.name,
        dest=root,
        backends=tuple(arguments.backends),
        license=arguments.license,
        layout=layout,
    )
    console.result(
        {"project": str(root), "files": [str(path) for path in written]},
        f"{root}: {counted(len(written), 'file')}\nnext: kernforge build {root}",
    )


def _init(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import scaffold  # noqa: PLC0415

    root: Path = arguments.directory
    layout: Layout = arguments.layout
    filled = scaffold.fill(
        arguments.name or scaffold.name_for(root),
        dest=root,
        backends=tuple(arguments.backends),
        license=arguments.license,
        layout=layout,
    )
    if (root / "setup.py").is_file():
        console.note(f"{root / 'setup.py'}: its extensions are not part of the project")
    _print_filled(root, filled, console, after=f"next: kernforge build {root}")


def _print_filled(root: Path, filled: scaffold.Filled, console: Console, *, after: str) -> None:
    for path in filled.kept:
        note = "; add build/ to it" if path.name == ".gitignore" else ""
        console.note(f"{path}: kept as it is{note}")
    console.result(
        {
            "project": str(root),
            "files": [str(path) for path in filled.written],
            "kept": [str(path) for path in filled.kept],
        },
        "\n".join([*map(str, filled.written), after]),
    )

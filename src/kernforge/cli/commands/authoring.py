# SPDX-License-Identifier: Apache-2.0
"""Commands that write a project's files: new, adopt, skills, migrate."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Collection, Mapping
from pathlib import Path

from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.project.scaffold import Layout
from kernforge.project.skills import PLACES
from kernforge.system.console import Console
from kernforge.system.environment import expanded
from kernforge.system.tables import counted


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _new, "new")
    verb.add_argument(
        "name",
        nargs="?",
        help="lower-case letters, digits and dashes (default with --here: the directory's)",
    )
    verb.add_argument(
        "--dir",
        type=Path,
        default=Path(),
        help="parent directory of the project; with --here or --op the project itself (default: "
        "current directory)",
    )
    what = verb.add_mutually_exclusive_group()
    options.add_flag(what, "--here", "make an existing directory a project, and overwrite nothing")
    what.add_argument(
        "--op", metavar="NAME", help="add an operator of this name to an existing project"
    )
    _add_choices(verb)

    verb = options.add_verb(verbs, _adopt, "adopt")
    verb.add_argument(
        "source",
        type=Path,
        help="a directory with a setup.py or with scripts, or one script; it is not changed",
    )
    verb.add_argument(
        "--out", type=Path, help="directory of the new project (default: the kernel's name)"
    )
    verb.add_argument("--name", help="the kernel's name (default: that of the setup.py or module)")
    verb.add_argument("--license", help="SPDX name (default: the setup.py's, or unknown)")

    verb = options.add_verb(verbs, _skills, "skills")
    verb.add_argument(
        "--for",
        dest="places",
        action="append",
        default=[],
        choices=tuple(PLACES),
        help="; ".join(f"{name}: {p.project}, read by {p.readers}" for name, p in PLACES.items())
        + "; may be repeated (default: those whose directory exists, else agents)",
    )
    where = verb.add_mutually_exclusive_group()
    where.add_argument(
        "--global",
        dest="user",
        action="store_true",
        help="for all your projects: the same places in your home directory",
    )
    where.add_argument("--dest", type=Path, metavar="DIR", help="another directory of skills")
    options.add_flag(verb, "--force", "replace a skill of this name that is not ours")

    verb = options.add_verb(verbs, _migrate, "migrate")
    options.add_project(verb)
    verb.add_argument(
        "--license",
        default="",
        help="license of the kernel, best an SPDX name, where build.toml names none",
    )


def _add_choices(verb: argparse.ArgumentParser) -> None:
    """Add what a new project lets a user choose."""
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
    verb.add_argument(
        "--ci",
        choices=["github", "gitlab"],
        help="with jobs that build, test, sign and publish, an image and a dev container",
    )


def _new(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import scaffold  # noqa: PLC0415

    if arguments.op:
        if arguments.name:
            raise UsageError(
                f"{arguments.name} was given besides the operator",
                hint="--dir names the project that gets it",
            )
        _add_op(arguments, console)
        return
    if arguments.here:
        _init(arguments, console)
        return
    if arguments.name is None:
        raise UsageError(
            "the name of the project is missing", hint="`kernforge new my-kernel` makes one"
        )
    root = arguments.dir / arguments.name
    more = _ci_files(arguments, arguments.name, arguments.backends)
    written = scaffold.create(_project_files(arguments, arguments.name, more), root)
    count = counted(len(written), "file")
    console.result(
        {"project": str(root), "files": [str(path) for path in written]},
        f"{root}: {count}\n{_next(root, more)}",
    )


def _init(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import scaffold  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415

    root: Path = arguments.dir
    if arguments.ci and (root / scaffold.MANIFEST).is_file():
        general = read_project(root).manifest.general
        more = _ci_files(arguments, general.name, general.backends)
        filled = scaffold.add_files(more, root)
    else:
        name = arguments.name or scaffold.name_for(root)
        more = _ci_files(arguments, name, arguments.backends)
        filled = scaffold.fill(_project_files(arguments, name, more), root)
        if (root / "setup.py").is_file():
            console.note(
                f"{root / 'setup.py'}: its extensions are not part of the project; "
                "`kernforge adopt` makes a project of them"
            )
    for path in filled.kept:
        note = "; add build/ to it" if path.name == ".gitignore" else ""
        console.note(f"{path}: kept as it is{note}")
    console.result(
        {
            "project": str(root),
            "files": [str(path) for path in filled.written],
            "kept": [str(path) for path in filled.kept],
        },
        "\n".join([*map(str, filled.written), _next(root, more)]),
    )


def _project_files(
    arguments: argparse.Namespace, name: str, more: Mapping[str, str]
) -> dict[str, str]:
    """The files of the project that the user asks for."""
    from kernforge.project import scaffold  # noqa: PLC0415

    layout: Layout = arguments.layout
    return scaffold.project_files(
        name,
        backends=tuple(arguments.backends),
        license=arguments.license,
        layout=layout,
        more=more,
    )


def _ci_files(
    arguments: argparse.Namespace, name: str, backends: Collection[str]
) -> dict[str, str]:
    """What ``--ci`` adds to the project."""
    from kernforge.project import scaffold  # noqa: PLC0415

    return scaffold.ci_files(arguments.ci, name, backends) if arguments.ci else {}


def _next(root: Path, more: Collection[str]) -> str:
    """What to do now."""
    if not more:
        return f"next: kernforge build {root}"
    jobs = next(path for path in more if path.endswith((".yml", ".yaml")))
    return (
        f"next: kernforge lock {root}, commit kernforge.lock, and set the variables that "
        f"{jobs} names"
    )


def _add_op(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import operators  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415

    project = read_project(arguments.dir)
    added = operators.add_operator(project, arguments.op)
    lines = [*map(str, added.written), *(f"{path}: changed" for path in added.changed)]
    console.result(
        {
            "operator": added.name,
            "files": [str(path) for path in added.written],
            "changed": [str(path) for path in added.changed],
        },
        "\n".join([*lines, f"next: kernforge test {arguments.dir}"]),
    )


def _adopt(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.adopt import api as adopt  # noqa: PLC0415

    adopted = adopt.adopt(
        arguments.source,
        dest=arguments.out,
        name=arguments.name or "",
        license=arguments.license or "",
    )
    count = len(adopted.operators)
    lines = [f"{adopted.dest}: {counted(len(adopted.files), 'file')}, {counted(count, 'operator')}"]
    lines += [f"  {name}: {schema}" for name, schema in adopted.operators.items()]
    titles = {
        "changed": "translated otherwise:",
        "check": "assumed, look at it:",
        "left": "not translated, yours to do:",
    }
    for kind, title in titles.items():
        remarks = [f"  {remark}" for remark in adopted.remarks if remark.kind == kind]
        lines += [title, *remarks] if remarks else []
    lines.append(f"next: kernforge build {adopted.dest}")
    console.result(
        {
            "project": str(adopted.dest),
            "files": [str(path) for path in adopted.files],
            "operators": dict(adopted.operators),
            "remarks": [dataclasses.asdict(remark) for remark in adopted.remarks],
        },
        "\n".join(lines),
    )


def _skills(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.project import skills  # noqa: PLC0415

    if arguments.dest:
        found: tuple[Path, ...] = (arguments.dest,)
    else:
        root = expanded("~") if arguments.user else Path()
        found = skills.directories(root, tuple(arguments.places), user=arguments.user)
    written = [skills.write(directory, force=arguments.force) for directory in found]
    console.result(
        {"skill": skills.NAME, "directories": [str(path) for path in written]},
        "\n".join(f"{path}: {counted(len(skills.texts()), 'file')}" for path in written),
    )


def _migrate(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.manifest import migrate  # noqa: PLC0415
    from kernforge.project import api as project  # noqa: PLC0415

    path = project.find(arguments.project) / project.MANIFEST
    notes = migrate.migrate_file(path, license_name=arguments.license)
    console.result({"file": str(path), "notes": notes}, "\n".join([f"{path}: edition 5", *notes]))

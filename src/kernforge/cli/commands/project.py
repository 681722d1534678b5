# SPDX-License-Identifier: Apache-2.0
"""Commands that describe a project: variants, lock-toolchain, migrate, schema."""

from __future__ import annotations

import itertools
import operator
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.cli import options
from kernforge.system import tables

if TYPE_CHECKING:
    import argparse

    from kernforge.system.console import Console

_FEW = 2


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _variants, "variants")
    options.add_project(verb)
    options.add_system(verb)
    options.add_toolchain(verb)

    verb = options.add_verb(verbs, _lock, "lock-toolchain")
    options.add_project(verb)
    options.add_repeated(verb, "--cuda", "also lock this CUDA version, such as 13.2")
    options.add_repeated(verb, "--torch", "also lock this torch version, such as 2.13")
    options.add_toolchain(verb)
    options.add_flag(verb, "--upgrade", "take the newest releases")

    verb = options.add_verb(verbs, _migrate, "migrate")
    options.add_project(verb)
    verb.add_argument(
        "--license",
        default="",
        help="license of the kernel, best an SPDX name, where build.toml names none",
    )

    verb = options.add_verb(verbs, _schema, "schema")
    verb.add_argument("-o", "--out", type=Path, help="file to write the schema to")


def _variants(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.builder import workspace as build_workspace  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415

    project = read_project(arguments.project)
    parts = build_workspace.project_parts(
        project, arguments.environment, options.local_parts(arguments)
    )
    here = build_workspace.this_cpu()
    cpu = build_workspace.cpu_of(arguments.system) if arguments.system else here
    if cpu != here and (lacking := build_workspace.lacking_compiler(cpu, arguments.environment)):
        console.note(f"note: {lacking}")
    candidates = build_workspace.candidates(project, cpu, parts)
    document = [
        {"name": c.name, "builds": bool(c.target), "default": c.default, "reason": c.reason}
        for c in candidates
    ]
    words = {(True, True): "built", (True, False): "on request", (False, False): "left out"}
    # Neighbours that are so for the same reason are one row.
    said = [(words[c.target is not None, c.default], c.reason) for c in candidates]
    alike = itertools.groupby(zip(candidates, said, strict=True), key=operator.itemgetter(1))
    rows = [
        (name, *told)
        for told, group in alike
        for name in _in_short([c.name for c, _ in group], whole=told[0] == "built")
    ]
    console.result(document, tables.table(rows, head=("variant", "is", "because")))


def _in_short(names: list[str], *, whole: bool) -> list[str]:
    """A few names as they are; of many the first and the last one, unless all are wanted."""
    if whole or len(names) <= _FEW:
        return names
    return [f"{names[0]} ... {names[-1]} ({len(names)})"]


def _lock(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.builder import locking  # noqa: PLC0415
    from kernforge.project import targets as project_targets  # noqa: PLC0415
    from kernforge.toolchain.lockfile import Tree  # noqa: PLC0415

    workspace = options.workspace(arguments, console)
    targets = project_targets.choose(workspace.candidates, [])
    more = [Tree("cuda", version) for version in arguments.cuda]
    more += [Tree("torch", version) for version in arguments.torch]
    wanted = locking.needs(workspace, targets).union(more)
    locked = locking.write_lock(workspace, wanted, upgrade=arguments.upgrade)
    lines = [
        f"{tree}: {tree.release}"
        + (f", front end of {tree.front_end.release}" if tree.front_end else "")
        for tree in sorted(locked.trees.values())
    ]
    lines += [f"{name}: {each.identity}" for name, each in sorted(locked.compilers.items())]
    path = workspace.project.root / "kernforge.lock"
    console.result({"lock": str(path)}, "\n".join([str(path), *(f"  {line}" for line in lines)]))


def _migrate(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.manifest import migrate  # noqa: PLC0415
    from kernforge.project import api as project  # noqa: PLC0415

    path = project.find(arguments.project) / project.MANIFEST
    notes = migrate.migrate_file(path, license_name=arguments.license)
    console.result({"file": str(path), "notes": notes}, "\n".join([f"{path}: edition 5", *notes]))


def _schema(arguments: argparse.Namespace, console: Console) -> None:
    import json  # noqa: PLC0415

    from kernforge.manifest import schema  # noqa: PLC0415
    from kernforge.system import files  # noqa: PLC0415

    document = schema.json_schema()
    text = json.dumps(document, indent=2)
    if arguments.out:
        options.can_write(arguments.out)
        files.write_atomic(arguments.out, text + "\n")
        console.result({"file": str(arguments.out)}, str(arguments.out))
    else:
        console.result(document, text)

# SPDX-License-Identifier: Apache-2.0
"""``kernforge wheel``: wheels of variants, or of a project with a setup.py."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from kernforge.artifact import directories
from kernforge.artifact.directories import BuiltVariant
from kernforge.cli import options
from kernforge.errors import UsageError
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.wheel import api as wheel


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Make the wheels."""
    path = Path(arguments.kernel)
    for_setup = arguments.torch or arguments.cuda or arguments.python
    for_kernel = arguments.version or arguments.name or arguments.as_version or arguments.variant
    is_kernel = any((path / name).is_file() for name in ("build.toml", "metadata.json"))
    is_setup = not is_kernel and (
        (path / "setup.py").is_file() or (for_setup and (path / "pyproject.toml").is_file())
    )
    if is_setup and for_kernel:
        raise UsageError(
            f"--version, --as-version, --name and --variant are for kernels, and {path} has a "
            "setup.py",
            hint="remove them: the setup.py gives name and version",
        )
    if for_setup and not is_setup:
        raise UsageError(
            f"{path} is not a setup.py project; --torch, --cuda and --python are for one",
            hint="choose variants with --variant; `kernforge build` makes them",
        )
    make = _from_setup_py if is_setup else _from_kernel
    wheels = make(arguments, console)
    console.result({"wheels": wheels}, "\n".join(made["path"] for made in wheels))


def _from_kernel(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    sources, version, card = _sources(arguments)
    version = arguments.as_version or version
    wheels = wheel.make(
        sources,
        arguments.out,
        arguments.environment.home,
        version=version,
        patterns=arguments.variant,
        name=arguments.name,
        card=card,
        seconds=_epoch(arguments.environment),
    )
    for note in dict.fromkeys(note for built in wheels for note in built.plan.notes):
        console.note(note)
    if version is None:
        given = ", ".join(sorted({built.plan.version for built in wheels}))
        console.note(f"the wheels get {given}: there is no --as-version and no git tag vX.Y.Z")
    return [
        {
            "path": str(built.path),
            "sha256": built.sha256,
            "variant": built.variant,
            "name": built.plan.distribution,
            "version": built.plan.version,
            "tag": "-".join(built.plan.tag),
            "requires": list(built.plan.requires),
        }
        for built in wheels
    ]


def _from_setup_py(arguments: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    from kernforge.setuptools import wheels  # noqa: PLC0415 - kernels need none of it

    environment, documents = arguments.environment, []
    for each in wheels.make_wheels(
        Path(arguments.kernel),
        wheels.targets(arguments.torch, arguments.cuda, arguments.python, environment),
        arguments.out,
        environment,
        console,
        seconds=_epoch(environment),
    ):
        console.note(f"{each.path.name}: built in {each.seconds:.0f} s")
        documents.append(
            {
                "path": str(each.path),
                "torch": str(each.target.torch),
                "cuda": str(each.target.cuda) if each.target.cuda else None,
                "python": each.target.python,
                "requires": list(each.requires),
                "seconds": round(each.seconds, 1),
            }
        )
    return documents


def _sources(arguments: argparse.Namespace) -> tuple[list[BuiltVariant], str | None, str]:
    """The variants, their version if it is known, and the card of a project's template."""
    directory = directories.directory_of(arguments.kernel)
    wanted, revision = options.version_of(arguments.version)
    if directory is None:
        store, environment = options.registry(arguments), arguments.environment
        sources, version = wheel.from_registry(
            store, arguments.kernel, wanted, revision, environment
        )
        if version is None and arguments.as_version is None:
            raise UsageError(
                f"the commit of {arguments.kernel} has no tag vX.Y.Z for its wheels",
                hint="give --as-version X.Y.Z",
            )
        return sources, version, ""
    if arguments.version:
        raise UsageError(
            f"{directory} is a directory, which has no published versions",
            hint="give --as-version X.Y.Z for its wheels, or owner/name for a published kernel",
        )
    return wheel.from_directory(directory), *_version_and_card(directory)


def _version_and_card(directory: Path) -> tuple[str | None, str]:
    """The version from git tags and the card, of a project or the project around a build."""
    from kernforge.project import card as cards  # noqa: PLC0415 - published kernels need neither
    from kernforge.project.api import read_project, tagged_version  # noqa: PLC0415

    for root in (directory, directory.absolute().parent):
        if (root / "build.toml").is_file():
            project = read_project(root)
            card, general = cards.read(project), project.manifest.general
            repo_id = general.hub.repo_id or f"your-name/{general.name}"
            return tagged_version(project), card.fill(repo_id) if card.authored else ""
    return None, ""


def _epoch(environment: Environment) -> int:
    """``SOURCE_DATE_EPOCH``; 0 without it."""
    text = environment.source_date_epoch or "0"
    if not text.isdecimal():
        raise UsageError(
            f"SOURCE_DATE_EPOCH is {text!r}, which is not a number of seconds since 1970",
            hint="unset it, or set it to the output of `date +%s`",
        )
    return int(text)

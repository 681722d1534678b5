# SPDX-License-Identifier: Apache-2.0
"""The command that makes wheels of built variants."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.cli import options
from kernforge.errors import UsageError

if TYPE_CHECKING:
    import argparse

    from kernforge.system.console import Console
    from kernforge.system.environment import Environment
    from kernforge.wheel.api import BuiltWheel, VariantSource


def add(verbs: options.Verbs) -> None:
    """Add the commands of this module."""
    verb = options.add_verb(verbs, _wheel, "wheel")
    verb.add_argument(
        "kernel",
        nargs="?",
        default=".",
        help="directory of a build or of a setup.py project, or owner/name (default: current "
        "directory)",
    )
    options.add_registry(verb)
    options.add_version(verb)
    verb.add_argument(
        "--as-version",
        metavar="X.Y.Z",
        help="version of the wheels (default: the published version, the project's git tag, or "
        "MAJOR.0.0)",
    )
    verb.add_argument("--name", help="name of the distribution (default: the kernel's name)")
    options.add_repeated(
        verb,
        "--variant",
        "only variants that match, such as '*-cu130-*'; may be repeated",
        metavar="PATTERN",
    )
    verb.add_argument(
        *("-o", "--out"),
        type=Path,
        default=Path("dist"),
        help="directory for the wheels (default: dist)",
    )
    extension = verb.add_argument_group("projects with a setup.py")
    extension.add_argument(
        "--torch",
        type=_listed,
        default=[],
        metavar="X.Y,...",
        help="torch releases to build for (default: the installed one, otherwise the newest)",
    )
    extension.add_argument(
        "--cuda",
        type=_listed,
        default=[],
        metavar="X.Y,...",
        help="CUDA versions, or cpu; each torch takes those that it was published for (default: "
        "the newest that is compiled from wheels)",
    )
    extension.add_argument(
        "--python",
        type=_listed,
        default=[],
        metavar="X.Y,...",
        help="Pythons whose headers are on this machine (default: this one)",
    )


def _wheel(arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.wheel import api as wheel  # noqa: PLC0415

    if project := _setup_project(arguments):
        _extension_wheels(project, arguments, console)
        return
    sources, version, card = _sources(arguments)
    wheels = wheel.make(
        sources,
        arguments.out,
        version=arguments.as_version or version,
        patterns=arguments.variant,
        name=arguments.name,
        card=card,
        seconds=_epoch(arguments.environment),
    )
    if arguments.as_version is None and version is None:
        given = ", ".join(sorted({built.plan.version for built in wheels}))
        console.note(f"the wheels get {given}: there is no --as-version and no git tag vX.Y.Z")
    _print([_json(built) for built in wheels], console)


def _print(wheels: list[dict[str, Any]], console: Console) -> None:
    """Print what was made."""
    console.result({"wheels": wheels}, "\n".join(made["path"] for made in wheels))


def _setup_project(arguments: argparse.Namespace) -> Path | None:
    """The directory of a project whose wheels setuptools makes; None for a kernel."""
    path = Path(arguments.kernel)
    chosen = arguments.torch or arguments.cuda or arguments.python
    is_project = any((path / name).is_file() for name in ("setup.py", "pyproject.toml"))
    built = (path / "build.toml").is_file() or (path / "metadata.json").is_file()
    if is_project and not built and ((path / "setup.py").is_file() or chosen):
        return path
    if chosen:
        raise UsageError(
            f"{arguments.kernel} is a kernel, and --torch, --cuda and --python are for setup.py "
            "projects"
            if built
            else f"{arguments.kernel} is not a setup.py project, for which --torch, --cuda and "
            "--python are",
            hint="a kernel's variants are chosen with --variant; `kernforge build` makes them",
        )
    return None


def _extension_wheels(project: Path, arguments: argparse.Namespace, console: Console) -> None:
    from kernforge.setuptools import wheels  # noqa: PLC0415

    environment = arguments.environment
    if arguments.version or arguments.revision or arguments.name or arguments.as_version:
        raise UsageError(
            "--version, --revision, --as-version and --name are for kernels",
            hint="a setup.py has its own name and version",
        )
    wanted = wheels.targets(arguments.torch, arguments.cuda, arguments.python, environment)
    made = []
    for each in wheels.make_wheels(
        project, wanted, arguments.out, environment, console, seconds=_epoch(environment)
    ):
        made.append(each)
        console.note(
            f"{each.path.name}: {each.compiled} of {each.actions} actions were run in "
            f"{each.seconds:.0f} s"
        )
    documents = [
        {
            "path": str(each.path),
            "torch": str(each.target.torch),
            "cuda": str(each.target.cuda) if each.target.cuda else None,
            "python": each.target.python,
            "requires": list(each.requires),
            "actions": each.actions,
            "compiled": each.compiled,
            "seconds": round(each.seconds, 1),
        }
        for each in made
    ]
    _print(documents, console)


def _listed(text: str) -> list[str]:
    """Argument type: words with commas between them."""
    return [word for word in text.replace(" ", "").split(",") if word]


def _json(wheel: BuiltWheel) -> dict[str, Any]:
    return {
        "path": str(wheel.path),
        "sha256": wheel.sha256,
        "variant": wheel.variant,
        "name": wheel.plan.distribution,
        "version": wheel.plan.version,
        "tag": "-".join(wheel.plan.tag),
        "requires": list(wheel.plan.requires),
    }


def _sources(arguments: argparse.Namespace) -> tuple[list[VariantSource], str | None, str]:
    """The variants, the version that they are known to be, and the card of a project's template."""
    from kernforge.artifact import directories  # noqa: PLC0415
    from kernforge.wheel import api as wheel  # noqa: PLC0415

    directory = directories.directory_of(arguments.kernel)
    if directory is None:
        store = options.registry(arguments)
        sources, version = wheel.from_registry(
            store,
            arguments.kernel,
            arguments.version,
            arguments.revision,
            arguments.environment,
        )
        if version is None and arguments.as_version is None:
            raise UsageError(
                f"the requested commit of {arguments.kernel} has no tag vX.Y.Z, so that its wheels "
                "have no version",
                hint="give --as-version X.Y.Z",
            )
        return sources, version, ""
    if arguments.version or arguments.revision:
        raise UsageError(
            f"{directory} is a directory, which has no published versions",
            hint="give --as-version X.Y.Z for its wheels, or owner/name for a published kernel",
        )
    return wheel.from_directory(directory), *_of_project(directory)


def _of_project(directory: Path) -> tuple[str | None, str]:
    """Version by git's tags, and card, of a project or of the project that contains a build."""
    from kernforge.project import card as cards  # noqa: PLC0415
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
    text = "0" if environment.source_date_epoch is None else environment.source_date_epoch
    if not text.isdecimal():
        raise UsageError(f"SOURCE_DATE_EPOCH is {text!r}", hint="set it to seconds since 1970")
    return int(text)

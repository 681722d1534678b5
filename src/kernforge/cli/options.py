# SPDX-License-Identifier: Apache-2.0
"""Shared parts of the commands' parsers: a function that adds a command, and common options."""

from __future__ import annotations

import argparse
import getpass
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from kernforge.cli.table import BY_NAME
from kernforge.errors import StorageError, UsageError, page
from kernforge.system.machine import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kernforge.builder.workspace import Workspace
    from kernforge.registry.base import Registry
    from kernforge.system.console import Console
    from kernforge.system.environment import Environment
    from kernforge.toolchain.local_parts import LocalPartsOptions
    from kernforge.trust.policy import KeySigner
    from kernforge.trust.signing import Key

    # The types have no public names: of commands, and of a command or a group of its options.
    Verbs: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]  # noqa: SLF001
    Arguments: TypeAlias = argparse._ActionsContainer  # noqa: SLF001


class _Help(argparse.RawDescriptionHelpFormatter):
    """Wraps the description, and keeps the lines of the epilog, an example and a link."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example: "):
            return super()._fill_text(text, width, indent)
        return argparse.HelpFormatter._fill_text(self, text, width, indent)  # noqa: SLF001


def add_verb(
    verbs: Verbs,
    run: Callable[[argparse.Namespace, Console], int | None],
    name: str,
) -> argparse.ArgumentParser:
    """Add a command of ``table.COMMANDS``, with the options that every command has.

    Args:
        run: function of the command; it may return the exit code of a program that it ran.
    """
    command = BY_NAME[name]
    example = f"example: kernforge {name} {command.example}"
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    verb = verbs.add_parser(
        name,
        help=command.summary,
        description=f"{summary} {command.more}".strip(),
        epilog=f"{example.rstrip()}\n\nmore: {page(command.page)}",
        formatter_class=_Help,
    )
    verb.set_defaults(verb=run, spoken=verb)
    add_common(verb, default=argparse.SUPPRESS)
    return verb


def text_of(path: Path) -> str:
    """The text of a file that the user named."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name another file") from None


def add_flag(parser: Arguments, name: str, text: str) -> None:
    """Add an option without a value."""
    parser.add_argument(name, action="store_true", help=text)


def add_repeated(parser: Arguments, name: str, text: str, **more: Any) -> None:
    """Add an option that may be given several times: its values are a list."""
    parser.add_argument(name, action="append", default=[], help=text, **more)


def add_common(parser: argparse.ArgumentParser, *, default: bool | str) -> None:
    """Add the options that every command has, before and after its name.

    Args:
        parser: of the command line, or of one command.
        default: the value without the option; ``argparse.SUPPRESS`` leaves what was said before.
    """
    for names, text in (
        (("--json",), "print the result as one JSON document"),
        (("-q", "--quiet"), "print no progress and no notes"),
        (("-v", "--verbose"), "print every action, and where an error was raised"),
    ):
        parser.add_argument(*names, action="store_true", default=default, help=text)


def add_project(verb: argparse.ArgumentParser) -> None:
    """Add the project, which is the current directory by default."""
    verb.add_argument(
        "project",
        type=Path,
        nargs="?",
        default=Path(),
        help="the project (default: current directory)",
    )


def add_build_dir(
    verb: argparse.ArgumentParser,
    use: str = "directory of the built variants",
    *,
    short: bool = False,
) -> None:
    """Add the directory of a project's built variants, which has one name in every command.

    Args:
        short: whether the command writes to it, so that ``-o`` names it too.
    """
    verb.add_argument(
        *(("-o",) if short else ()),
        "--build-dir",
        type=Path,
        metavar="DIR",
        help=f"{use} (default: PROJECT/build)",
    )


def add_built(verb: argparse.ArgumentParser, other: str = "") -> None:
    """Add what was built, which every command that reads it takes in the same forms.

    Args:
        other: what else the command takes, for the help.
    """
    verb.add_argument(
        "built",
        metavar="DIR",
        type=Path,
        nargs="?",
        default=Path(),
        help=f"a project, a directory of built variants, or a variant{other} "
        "(default: current directory)",
    )


def add_registry(verb: argparse.ArgumentParser) -> None:
    """Add the registry to read or write."""
    verb.add_argument(
        "--registry",
        help="directory or URL (default: KERNFORGE_REGISTRY, otherwise the user's own registry)",
    )


def registry(arguments: argparse.Namespace) -> Registry:
    """The registry of the command line, to read from."""
    from kernforge.registry import api as registries  # noqa: PLC0415

    named: str | None = arguments.registry
    if named:
        return registries.open_registry(named, arguments.environment)
    return registries.open_default(arguments.environment)


def add_version(verb: argparse.ArgumentParser, default: str = " (default: the newest)") -> None:
    """Add the version or the revision of a published kernel."""
    which = verb.add_mutually_exclusive_group()
    which.add_argument(
        "--version",
        help="of a published kernel: a major version, X.Y.Z, or a range such as '>=1.2,<2'"
        f"{default}",
    )
    which.add_argument("--revision", help="a branch, tag or commit of a published kernel")


def add_toolchain(verb: argparse.ArgumentParser) -> None:
    """Add options for parts of the toolchain that the package index does not have."""
    verb.add_argument(
        "--cuda-home",
        metavar="DIR",
        help="directory of an installed CUDA toolkit to build with (default: KERNFORGE_CUDA_HOME)",
    )
    add_repeated(
        verb,
        "--depends",
        "a checkout of a dependency of build.toml, such as cutlass_4_0=PATH "
        "(default: CUTLASS_SRC_DIR for every CUTLASS)",
        metavar="NAME=PATH",
        type=named_path,
    )


def add_variants(verb: argparse.ArgumentParser, default: str) -> None:
    """Add the variants of a project; ``default`` says for the help which these are without it."""
    add_repeated(verb, "--variant", f"a name or a pattern; may be repeated (default: {default})")


def add_pytest(verb: argparse.ArgumentParser) -> None:
    """Add arguments for pytest."""
    add_repeated(
        verb,
        "--pytest",
        "an argument for pytest, such as --pytest=-x; may be repeated",
        metavar="ARGUMENT",
    )


def add_system(verb: argparse.ArgumentParser) -> None:
    """Add the machines to build for."""
    verb.add_argument(
        "--system",
        metavar="CPU-linux",
        help="machines to build for: aarch64-linux (ARM, such as GH200, GB200, Jetson Thor, DGX "
        "Spark) is built on x86_64 with a cross compiler (default: this machine's)",
    )


def add_jobs(verb: argparse.ArgumentParser) -> None:
    """Add the number of jobs."""
    verb.add_argument(
        *("-j", "--jobs"),
        type=positive,
        default=cores(),
        help="number of jobs at once (default: number of cores)",
    )


def add_sandbox(verb: argparse.ArgumentParser) -> None:
    """Add the option for the isolation of actions."""
    verb.add_argument(
        "--sandbox",
        choices=("required", "auto", "off"),
        default="auto",
        help="isolate actions from files that are not their inputs: always, if this machine can "
        "(default), or never",
    )


def open_key(path: Path, environment: Environment) -> Key:
    """A private key; the user is asked for its passphrase if it has one."""
    from kernforge.trust import signing  # noqa: PLC0415

    return signing.open_key(path, lambda: passphrase(environment))


def key_signers(paths: Iterable[Path]) -> list[KeySigner]:
    """The owners of public keys in files."""
    from kernforge.trust.policy import KeySigner, public_key  # noqa: PLC0415

    return [KeySigner(name=path.name, key=public_key(text_of(path), str(path))) for path in paths]


def passphrase(environment: Environment, *, twice: bool = False) -> str:
    """The passphrase of a key, from the environment or from the terminal."""
    if (given := environment.kernforge_sign_passphrase) is not None:
        return given
    if not sys.stdin.isatty():
        raise UsageError(
            "the passphrase of the key is missing, and there is no terminal to ask for it",
            hint="set KERNFORGE_SIGN_PASSPHRASE" + (", or pass --no-passphrase" if twice else ""),
        )
    words = getpass.getpass("passphrase: ")
    if twice and (not words or getpass.getpass("again: ") != words):
        raise UsageError(
            "the two passphrases differ or are empty", hint="try again, or pass --no-passphrase"
        )
    return words


def given(option: str | None, variable: str | None) -> str | None:
    """An option, else the variable that is its default; an empty text leaves it out."""
    return (variable if option is None else option) or None


def refuse_without(what: str, **given: object) -> None:
    """Refuse options that mean something with another option, or for another project, alone.

    Args:
        what: what is not there.
        given: the values of the options, by their names.

    Raises:
        UsageError: one has a value.
    """
    for name, value in given.items():
        if value:
            raise UsageError(f"--{name} is for {what}", hint=f"leave out --{name}")


def named_path(text: str) -> tuple[str, Path]:
    """Argument type: ``NAME=PATH``."""
    name, equals, path = text.partition("=")
    if not equals or not name or not path:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=PATH")
    return name, Path(path)


def size(text: str) -> int:
    """Argument type: a size such as ``16GB``, in bytes."""
    from kernforge.system.machine import parse_size  # noqa: PLC0415

    try:
        return parse_size(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def matching(pattern: str, names: Iterable[str], what: str) -> list[str]:
    """The variants that ``--variant`` means, of those of a project, a directory or a kernel.

    Raises:
        UsageError: there is none.
    """
    import fnmatch  # noqa: PLC0415 - few commands choose so

    known = list(names)
    if not (found := fnmatch.filter(known, pattern)):
        raise UsageError(
            f"{what} has no variant {pattern!r}",
            hint=f"its variants are {', '.join(known) or 'none'}",
        )
    return found


def capability(text: str) -> str:
    """Argument type: a CUDA compute capability such as ``9.0``."""
    from kernforge.errors import ManifestError  # noqa: PLC0415
    from kernforge.toolchain.cuda_arch import Arch  # noqa: PLC0415

    try:
        Arch.parse(text)
    except ManifestError as error:
        raise argparse.ArgumentTypeError(f"{error.message}: {error.hint}") from error
    return text


def positive(text: str) -> int:
    """Argument type: a whole number of 1 or more."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def workspace(
    arguments: argparse.Namespace, console: Console, *, shared: str | None = None
) -> Workspace:
    """The project of the command line, on this machine, ready to be planned."""
    from kernforge.builder import workspace as build_workspace  # noqa: PLC0415
    from kernforge.project.api import read_project  # noqa: PLC0415
    from kernforge.store.remote import SharedStore  # noqa: PLC0415

    second = None
    if shared:
        from kernforge.trust.builders import read_builders  # noqa: PLC0415

        second = SharedStore(shared, console.note, read_builders(arguments.environment))
    project = read_project(arguments.project)
    return build_workspace.open_workspace(
        project, console, arguments.environment, local_parts(arguments), shared=second
    )


def local_parts(arguments: argparse.Namespace) -> LocalPartsOptions:
    """What the user provides to the toolchain."""
    from kernforge.toolchain.local_parts import LocalPartsOptions  # noqa: PLC0415

    environment: Environment = arguments.environment
    options = vars(arguments)  # of build and lock; for other commands the variables say it
    cuda_home = given(options.get("cuda_home"), environment.kernforge_cuda_home)
    cutlass = environment.cutlass_src_dir
    return LocalPartsOptions(
        cuda_home=Path(cuda_home) if cuda_home else None,
        depends=({"": Path(cutlass)} if cutlass else {}) | dict(options.get("depends", ())),
    )


def can_write(path: Path) -> None:
    """Check before long work that its result can be written to a file.

    Raises:
        StorageError: the directory is not writable.
        UsageError: the path is a directory, or its directory does not exist.
    """
    from kernforge.system import machine  # noqa: PLC0415

    if path.is_dir():
        raise UsageError(f"{path} is a directory", hint="name a file to write")
    if not path.parent.exists():
        raise UsageError(
            f"there is no directory {path.parent} to write {path.name} to",
            hint="check the path, or make the directory first",
        )
    if trouble := machine.room(path.parent)[1]:
        raise StorageError(
            f"{path} cannot be written: {trouble}", hint="name a file in a writable directory"
        )

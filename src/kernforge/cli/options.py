# SPDX-License-Identifier: Apache-2.0
"""Values of options that several commands have: registry, kernel, workspace, key."""

from __future__ import annotations

import argparse
import fnmatch
import getpass
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.registry.api import open_default, open_registry
from kernforge.registry.directory import Registries
from kernforge.registry.names import COMMIT
from kernforge.system.console import Console
from kernforge.system.environment import Environment, is_terminal

if TYPE_CHECKING:  # heavy
    from kernforge.audit.describe import FoundKernel
    from kernforge.builder.workspace import Workspace
    from kernforge.trust.signing import Key

_VERSION = re.compile(r"v?\d+(?:\.\d+)*|\s*[<>=!~].*")


def text_of(path: Path) -> str:
    """The text of a file from the command line."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read: {error}", hint="name a text file") from None


def registry(arguments: argparse.Namespace) -> Registries:
    """The registries to read from."""
    named: str | None = arguments.registry
    if named:
        return open_registry(named, arguments.environment)
    return open_default(arguments.environment)


def version_of(text: str | None) -> tuple[str | None, str | None]:
    """A text as a version or a revision; the other one is None."""
    if text is None or (_VERSION.fullmatch(text) and not COMMIT.fullmatch(text)):
        return text, None
    return None, text


def kernel(arguments: argparse.Namespace) -> FoundKernel:
    """The kernel in a registry or a directory."""
    from kernforge.audit import describe  # noqa: PLC0415 - few commands need it

    wanted, revision = version_of(arguments.version)
    return describe.find(arguments.what, registry(arguments), version=wanted, revision=revision)


def matching(pattern: str, names: Iterable[str], what: str) -> list[str]:
    """The names of variants that match ``--variant``."""
    known = list(names)
    if not (matched := fnmatch.filter(known, pattern)):
        raise UsageError(
            f"{what} has no variant {pattern!r}",
            hint=f"its variants are {', '.join(known) or 'none'}",
        )
    return matched


def open_key(path: Path, environment: Environment) -> Key:
    """A private key; an encrypted one needs its passphrase."""
    from kernforge.trust import signing  # noqa: PLC0415 - needs cryptography

    return signing.open_key(path, lambda: passphrase(environment))


def passphrase(environment: Environment, *, new: bool = False) -> str:
    """The passphrase of a key, from the environment or from the terminal."""
    if (given := environment.kernforge_sign_passphrase) is not None:
        return given
    if not is_terminal(sys.stdin):
        raise UsageError(
            "the passphrase of the key is missing, and there is no terminal to ask for it",
            hint="set KERNFORGE_SIGN_PASSPHRASE; an empty value means no passphrase",
        )
    words = getpass.getpass("passphrase (empty for none): " if new else "passphrase: ")
    if new and getpass.getpass("again: ") != words:
        raise UsageError("the two passphrases differ", hint="run the command again")
    return words


def workspace(arguments: argparse.Namespace, console: Console) -> Workspace:
    """The project of the command line, ready for a build plan."""
    from kernforge.builder import workspace as workspaces  # noqa: PLC0415 - few commands build
    from kernforge.project.api import read_project  # noqa: PLC0415
    from kernforge.project.units import cutlass  # noqa: PLC0415
    from kernforge.store.remote import SharedStore  # noqa: PLC0415
    from kernforge.toolchain.local_parts import LocalParts  # noqa: PLC0415
    from kernforge.trust.signing import read_builders  # noqa: PLC0415

    environment: Environment = arguments.environment
    url = environment.kernforge_shared_store
    shared = SharedStore(url, console.note, read_builders(environment)) if url else None
    project = read_project(arguments.project)
    parts = LocalParts.named(environment, cutlass(project.manifest))
    return workspaces.open_workspace(project, console, environment, parts, shared=shared)

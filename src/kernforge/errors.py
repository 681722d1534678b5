# SPDX-License-Identifier: Apache-2.0
"""Every error that a user can get.

An error of the loader is also the built-in error that the hub's client, ``kernels``, raises in the
same case, so that an application can keep its ``except`` clauses.

``exit_code`` is what the command exits with. Only ``cli.main`` turns an error into an exit; an
interrupt exits 130.
The message says what is wrong and where, with the value; the hint says what to do.
"""

from __future__ import annotations

import re
from typing import ClassVar


def page(path: str) -> str:
    """The file of a page of the documentation, in the repository.

    Args:
        path: the page below ``docs/`` without ``.md``, such as ``how-to/author/use-the-jit``.
    """
    return f"docs/{path}.md"


# C0 and C1 but for tab and line feed; U+202A to U+202E and U+2066 to U+2069 turn the direction.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text with its control characters escaped, but for tabs and line ends.

    Names, descriptions and errors of registries and projects are untrusted: an escape sequence in
    one would move the cursor, or hide lines of ours.
    """
    return _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


class KernforgeError(Exception):
    """Something went wrong that no other exit code names."""

    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return printable(f"{self.message}\n{self.hint}" if self.hint else self.message)


class UsageError(KernforgeError):
    """The command line or the arguments of a call are not valid."""

    exit_code = 2


class RequestError(UsageError, ValueError):
    """The arguments of a call of the loader are not valid."""


class MissingPackageError(UsageError, ImportError):
    """A required Python package is not installed."""


class DependencyError(UsageError, RuntimeError):
    """A kernel asks for another one at the wrong time, or for one that it does not declare."""


class MissingLockError(RequestError, FileNotFoundError):
    """A lock file is missing."""


class LayerError(UsageError, ValueError):
    """A layer, a kernel mapping and a mode do not fit together."""


class LayerTypeError(UsageError, TypeError):
    """A layer or a mapping has a wrong type."""


class ManifestError(KernforgeError):
    """build.toml is wrong; the message lists every mistake."""

    exit_code = 3


class ToolchainError(KernforgeError):
    """A compiler, header or lock is missing, wrong or disagrees."""

    exit_code = 4


class BuildError(KernforgeError):
    """A compiler ran and failed."""

    exit_code = 5


class SourceError(BuildError):
    """A source has a mistake that is seen without a compiler; the message has its line."""


class CheckError(KernforgeError):
    """An artifact violates a rule that users rely on."""

    exit_code = 6


class NoVariantError(KernforgeError, FileNotFoundError):
    """No variant of a kernel fits this machine.

    It is a ``FileNotFoundError`` too, because that is what the ``kernels`` client raises.
    """

    exit_code = 7


class MachineError(NoVariantError, RuntimeError):
    """A variant was chosen, but its code cannot run on this device, driver or loader."""


class RegistryError(KernforgeError):
    """A registry lacks, refuses or contradicts something."""

    exit_code = 8


class NotPublishedError(RegistryError, ValueError):
    """A registry has no such kernel, version or revision, or does not show it to this user."""


class AbsentError(NotPublishedError, FileNotFoundError):
    """A kernel, version or revision is not on this machine, and no hub may be asked."""


class KernelError(RegistryError, ValueError):
    """A published kernel breaks a rule of its format."""


class MovedError(RegistryError):
    """Another publisher published meanwhile; trying again may help."""


class IntegrityError(KernforgeError):
    """Files differ from their digest or have none."""

    exit_code = 9


class MetadataError(IntegrityError, ValueError):
    """A build's ``metadata.json`` cannot be read."""


class MissingFileError(IntegrityError, FileNotFoundError):
    """A build lacks a file that every build has."""


class NetworkError(KernforgeError):
    """The package index or a registry cannot be reached."""

    exit_code = 10


class StorageError(KernforgeError):
    """The disk is full, read-only or of another user, or a path is of a wrong kind."""

    exit_code = 11


class TrustError(KernforgeError, ValueError):
    """The trust policy refuses a kernel, or cannot be read.

    It is a ``ValueError`` too, because that is what the ``kernels`` client raises.
    """

    exit_code = 12


class UntestedError(KernforgeError):
    """Every test was skipped, so that the build is not tested."""

    exit_code = 13

# SPDX-License-Identifier: Apache-2.0
"""The errors of kernforge: a message names the condition and the value, a hint the action.

``exit_code`` is the exit code of a command; only ``cli.main`` exits, and with 130 after an
interrupt. An error of the loader is also the built-in exception that the hub's client, ``kernels``,
raises in the same case, so that an application can keep its ``except`` clauses.
"""

from __future__ import annotations

import re
from typing import ClassVar

# C0 and C1 but for tab and line feed, and the characters that change the direction of text.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text with its control characters escaped, but for tabs and line ends.

    Names, descriptions and errors of registries and projects are untrusted: an escape sequence
    could move the cursor or hide lines.
    """
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


class KernforgeError(Exception):
    """An error without an exit code of its own."""

    exit_code: ClassVar[int] = 1

    def __init_subclass__(cls, *, exit_code: int = 0) -> None:
        cls.exit_code = exit_code or cls.exit_code

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = printable(message)
        self.hint = printable(hint)

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message


class UsageError(KernforgeError, exit_code=2):
    """An invalid command line or argument."""


class RequestError(UsageError, ValueError):
    """An invalid argument to a loader function."""


class MissingPackageError(UsageError, ImportError):
    """A missing Python package."""


class DependencyError(UsageError, RuntimeError):
    """A kernel loads an undeclared dependency, or loads one at the wrong time."""


class MissingLockError(RequestError, FileNotFoundError):
    """A missing lock file."""


class LayerError(UsageError, ValueError):
    """An invalid combination of layer, kernel mapping and mode."""


class LayerTypeError(UsageError, TypeError):
    """A layer or mapping of a wrong type."""


class ManifestError(KernforgeError, exit_code=3):
    """An invalid build.toml; the message lists every mistake."""


class ToolchainError(KernforgeError, exit_code=4):
    """A compiler, header or lock that is missing, damaged or inconsistent."""


class UnavailableError(ToolchainError):
    """A part of a toolchain that no index has, or that is of another machine."""


class BuildError(KernforgeError, exit_code=5):
    """A failed compiler."""


class SourceError(BuildError):
    """A mistake in a source, found before compilation; the message has its line."""


class CheckError(KernforgeError, exit_code=6):
    """An artifact that breaks a rule, or a failed test."""


class NoVariantError(KernforgeError, FileNotFoundError, exit_code=7):
    """No variant of a kernel fits this machine."""


class MachineError(NoVariantError, RuntimeError):
    """The chosen variant cannot run on this device, driver or loader."""


class RegistryError(KernforgeError, exit_code=8):
    """A missing object in a registry, or a refused operation."""


class NotPublishedError(RegistryError, ValueError):
    """A kernel, version or revision that is not in a registry, or is hidden from this user."""


class AbsentError(NotPublishedError, FileNotFoundError):
    """A kernel, version or revision that is not on this machine, while offline."""


class KernelError(RegistryError, ValueError):
    """A published kernel that breaks a rule of its format."""


class MovedError(RegistryError):
    """A race with another publisher; a retry may succeed."""


class IntegrityError(KernforgeError, exit_code=9):
    """Files that differ from their digest, or have none."""


class MetadataError(IntegrityError, ValueError):
    """An unreadable ``metadata.json``."""


class MissingFileError(IntegrityError, FileNotFoundError):
    """A missing file that every build has."""


class NetworkError(KernforgeError, exit_code=10):
    """An unreachable package index or registry."""


class StorageError(KernforgeError, exit_code=11):
    """A disk that is full or read-only, a path of another owner or of a wrong kind."""


class TrustError(KernforgeError, ValueError, exit_code=12):
    """A refusal by the trust policy, or an invalid policy."""


class UntestedError(KernforgeError, exit_code=13):
    """Every test of a build was skipped."""

# SPDX-License-Identifier: Apache-2.0
"""``kernels.lock``: the commit of each kernel that an application uses.

The format is the hub's. As ``kernels`` 0.17 reads and writes it, a JSON list::

    [{"dependency": {"repo-id": "owner/name", "version": 1}, "lock": {"commit": "<40 or 64 hex>"}}]

where ``revision`` (a string) may stand instead of ``version``. It has the kernels that the
application requires and all that they depend on. Unknown keys and repeated dependencies are
refused, and so is the other list that clients before 0.17 wrote.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from kernforge import untrusted
from kernforge.artifact.metadata import KernelDepend
from kernforge.errors import IntegrityError, RequestError
from kernforge.loader.pins import Pins
from kernforge.registry import names
from kernforge.registry.names import Request
from kernforge.system.digest import sha256

FILE = "kernels.lock"

_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_VERSION_END = 1 << 64
_HINT = "lock the project again: kernforge lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class LockedKernel:
    """One kernel of a lock.

    Attributes:
        depend: the requirement.
        commit: 40 or 64 lower-case hex digits.
    """

    depend: KernelDepend
    commit: str

    @property
    def request(self) -> Request:
        """The requirement, as a request to a registry."""
        return names.request(self.depend.repo_id, self.depend.version, self.depend.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLocks:
    """A whole lock.

    Attributes:
        kernels: sorted by repo id, then by version or revision.
        source: the name of the file in errors.
        pins: the content of ``pins.FILE`` in the same directory; None when there is none.
    """

    kernels: tuple[LockedKernel, ...]
    source: str = FILE
    pins: Pins | None = None

    @classmethod
    def from_json(cls, data: bytes | str, *, source: str = FILE) -> KernelLocks:
        """Read a lock; errors name ``source``.

        Raises:
            RequestError: it is not a lock; the message names the file and the mistake.
        """
        try:
            entries = untrusted.parse_json(data)
        except ValueError as error:
            raise RequestError(f"{source} is not JSON: {error}", hint=_HINT) from None
        if not isinstance(entries, list):
            raise RequestError(f"{source} is not a list of locked kernels", hint=_HINT)
        if any(isinstance(entry, dict) and "repo_id" in entry for entry in entries):
            raise RequestError(f"{source} was written by kernels 0.16 or before", hint=_HINT)
        try:
            kernels = [_read_entry(entry) for entry in entries]
            _refuse_duplicates(kernels)
        except (_WrongError, RequestError) as error:
            reason = error.message if isinstance(error, RequestError) else error
            raise RequestError(f"{source}: {reason}", hint=_HINT) from None
        kernels.sort(key=lambda kernel: sort_key(kernel.depend))
        return cls(kernels=tuple(kernels), source=source)

    def of(self, repo_id: str) -> LockedKernel:
        """The kernel that an application names by its repo id alone.

        Of several the one that the project itself requires, where that is known; else the first.

        Raises:
            RequestError: it is not locked.
        """
        direct = self.pins.direct(repo_id) if self.pins else None
        for kernel in self.kernels:
            if kernel.depend.repo_id == repo_id and direct in {None, kernel.depend}:
                return kernel
        raise self._unlocked(repo_id)

    def find(self, request: Request) -> LockedKernel:
        """The kernel that was asked for, or that another one depends on.

        Raises:
            RequestError: it is not locked.
        """
        for kernel in self.kernels:
            if kernel.request == request:
                return kernel
        raise self._unlocked(f"{request.repo_id} ({request})")

    def check(self, repo_id: str, commit: str, variant: str, document: bytes) -> None:
        """Check that a variant's ``metadata.json`` is what it was when it was locked.

        Nothing is checked where another tool wrote the lock.

        Raises:
            IntegrityError: it has changed.
            RequestError: the commit or variant is not in ``pins.FILE``.
        """
        if self.pins is None:
            return
        expected = self.pins.expected(repo_id, commit, variant)
        if expected is None:
            raise RequestError(
                f"{self.source} locks {repo_id} to {commit}, kernforge-kernels.lock does not",
                hint=_HINT,
            )
        if sha256(document) != expected:
            raise IntegrityError(
                f"{repo_id} at commit {commit} is not what was locked: metadata.json of {variant} "
                "has changed",
                hint="nothing of it was run; ask its publisher why a commit changed, or lock "
                f"again: kernforge lock --upgrade {repo_id}",
            )

    def _unlocked(self, what: str) -> RequestError:
        return RequestError(
            f"{what} is not locked in {self.source}",
            hint="add it to [tool.kernels.dependencies] in pyproject.toml, lock the project "
            "(kernforge lock) and install it again",
        )


class _WrongError(Exception):
    """What is wrong with an entry."""


def sort_key(depend: KernelDepend) -> tuple[str, bool, int, str]:
    """Key of the order in which a lock lists kernels: repo id, version, then revision."""
    return depend.repo_id, depend.version is None, depend.version or 0, depend.revision or ""


def _refuse_duplicates(kernels: list[LockedKernel]) -> None:
    seen: set[KernelDepend] = set()
    for kernel in kernels:
        if kernel.depend in seen:
            raise _WrongError(f"{kernel.depend.repo_id} is listed twice")
        seen.add(kernel.depend)


def _read_entry(entry: object) -> LockedKernel:
    table = _table(entry, "an entry", required=("dependency", "lock"))
    named = _table(
        table["dependency"], "'dependency'", required=("repo-id",), allowed=("version", "revision")
    )
    lock = _table(table["lock"], "'lock'", required=("commit",))
    repo_id = _text(named, "repo-id")
    version, revision = named.get("version"), named.get("revision")
    if (version is None) == (revision is None):
        raise _WrongError(f"{repo_id} needs a version or a revision, and not both")
    if version is None:
        depend = KernelDepend(repo_id=repo_id, revision=_text(named, "revision"))
    elif type(version) is int and 0 <= version < _VERSION_END:
        depend = KernelDepend(repo_id=repo_id, version=version)
    else:
        raise _WrongError(f"{repo_id} has the version {version!r}, not a whole number")
    kernel = LockedKernel(depend=depend, commit=_commit(lock, "commit", repo_id))
    _ = kernel.request  # refuses names that no registry has
    return kernel


def _table(
    value: object, what: str, *, required: tuple[str, ...] = (), allowed: tuple[str, ...] = ()
) -> dict[str, Any]:
    """A JSON object; with ``required``, one that has those keys and at most ``allowed`` besides."""
    if not isinstance(value, dict):
        raise _WrongError(f"{what} is not an object")
    for key in required:
        if key not in value:
            raise _WrongError(f"{what} lacks {key!r}")
    unknown = sorted(set(value) - {*required, *allowed}) if required else []
    if unknown:
        raise _WrongError(f"{what} has an unknown key {unknown[0]!r}")
    return value


def _text(table: dict[str, Any], key: str) -> str:
    value = table[key]
    if not isinstance(value, str):
        raise _WrongError(f"{key!r} is {value!r}, not a string")
    return value


def _commit(table: dict[str, Any], key: str, repo_id: str) -> str:
    text = _text(table, key)
    if not _COMMIT.fullmatch(text):
        raise _WrongError(f"{repo_id} is locked to {text!r}, not a commit of 40 or 64 hex digits")
    return text.lower()

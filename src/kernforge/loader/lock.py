# SPDX-License-Identifier: Apache-2.0
"""The lock of an application's kernels: the commit of each, and the hashes of its content.

``kernels.lock`` is the hub's format. As ``kernels`` 0.17 reads and writes it, a JSON list::

    [{"dependency": {"repo-id": "owner/name", "version": 1}, "lock": {"commit": "<40 or 64 hex>"}}]

where ``revision`` (a string) may stand instead of ``version``. It has the kernels that the
application requires and all that they depend on. Unknown keys and repeated dependencies are
refused.

The hub's client reads commits alone, and trusts a registry about the content of a commit.
``kernforge-kernels.lock``, which that client ignores, has for each locked kernel the requirement,
the release, and the SHA-256 of every variant's ``metadata.json``, whose digest in turn covers every
file. By it the loader detects a commit with changed content::

    {"format": 1, "kernels": [
        {"dependency": {"repo-id": "owner/name", "version": 1}, "asked": ">=1.2,<2",
         "release": "1.4.2", "commit": "<hex>", "metadata": {"<variant>": "<hex SHA-256>"}}]}

``asked`` is null for a kernel that only other kernels require, ``release`` for one without a tag.

Both lie in the metadata of the application's installed distribution, where setuptools writes them,
or in its package, which every build backend can ship.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kernforge.artifact.metadata import KernelDepend
from kernforge.errors import IntegrityError, MissingLockError, RequestError
from kernforge.registry import names
from kernforge.registry.names import Request
from kernforge.system import untrusted
from kernforge.system.digest import sha256

FILE = "kernels.lock"
PINS_FILE = "kernforge-kernels.lock"
FORMAT = 1

_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_VERSION_END = 1 << 64
_HINT = "lock the project again: kernforge lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pin:
    """One locked kernel.

    Attributes:
        commit: 40 or 64 lower-case hex digits.
        asked: the project's requirement; None where only other kernels require it.
        release: the version, as in ``1.4.2``; None for a commit without a tag.
        metadata: hex SHA-256 of ``metadata.json`` of each variant.
    """

    depend: KernelDepend
    commit: str
    asked: str | None = None
    release: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The requirement, as a request to a registry."""
        return names.request(self.depend.repo_id, self.depend.version, self.depend.revision)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLocks:
    """A whole lock.

    Attributes:
        kernels: sorted by repo id, then by version or revision.
        pins: the content of ``kernforge-kernels.lock`` beside it; None when there is none.
    """

    kernels: tuple[Pin, ...]
    source: str = FILE
    pins: tuple[Pin, ...] | None = None

    @classmethod
    def from_json(cls, data: bytes | str, *, source: str = FILE) -> KernelLocks:
        """Read ``kernels.lock``; errors name ``source``."""
        try:
            return cls(kernels=_read_entries(untrusted.parse_json(data)), source=source)
        except (ValueError, TypeError) as error:
            raise _unreadable(source, error) from None

    def of(self, repo_id: str) -> Pin:
        """The locked kernel of a repo id: the project's own requirement, else the first."""
        required = [pin.depend for pin in (self.pins or ()) if pin.asked]
        pins = [pin for pin in self.kernels if pin.depend.repo_id == repo_id]
        if not pins:
            raise self._unlocked(repo_id)
        return next((pin for pin in pins if pin.depend in required), pins[0])

    def find(self, request: Request) -> Pin:
        """The locked kernel of a request."""
        for pin in self.kernels:
            if pin.request == request:
                return pin
        raise self._unlocked(f"{request.repo_id} ({request})")

    def check(self, repo_id: str, commit: str, variant: str, document: bytes) -> None:
        """Compare a variant's ``metadata.json`` with the lock; that of other tools has no hash."""
        if self.pins is None:
            return
        locked = (repo_id, commit)
        pins = (pin for pin in self.pins if (pin.depend.repo_id, pin.commit) == locked)
        pin = next(pins, None)
        if pin is None:
            raise RequestError(
                f"{self.source} locks {repo_id} to {commit}, {PINS_FILE} does not", hint=_HINT
            )
        if variant not in pin.metadata:
            raise RequestError(
                f"{repo_id} at commit {commit} had no variant {variant} when it was locked",
                hint="if the new variant may be trusted, lock again: "
                f"kernforge lock --upgrade {repo_id}",
            )
        if sha256(document) != pin.metadata[variant]:
            raise IntegrityError(
                f"{repo_id} at commit {commit} is not what was locked: metadata.json of {variant} "
                "has changed",
                hint="no kernel code ran; ask its publisher for the reason, or lock again: "
                f"kernforge lock --upgrade {repo_id}",
            )

    def _unlocked(self, what: str) -> RequestError:
        return RequestError(
            f"{what} is not locked in {self.source}",
            hint="add it to [tool.kernels.dependencies] in pyproject.toml, lock the project "
            "(kernforge lock) and install it again",
        )


def sort_key(depend: KernelDepend) -> tuple[str, bool, int, str]:
    """Key of the order in which a lock lists kernels: repo id, version, then revision."""
    return depend.repo_id, depend.version is None, depend.version or 0, depend.revision or ""


def read(path: Path) -> KernelLocks:
    """The lock in a file, with the one beside it."""
    try:
        return _parse(path.read_bytes(), _beside(path), str(path))
    except FileNotFoundError:
        raise MissingLockError(
            f"there is no file {path}", hint="lock the project's kernels: kernforge lock PROJECT"
        ) from None


def of_caller() -> KernelLocks:
    """The lock of the calling package."""
    module = _calling_module()
    for text, pinned, source in _locks_of(module):
        return _parse(text, pinned, source)
    raise RequestError(
        f"{module.partition('.')[0] or 'the calling script'!r} was installed without {FILE}",
        hint="lock its kernels (kernforge lock PROJECT) and install it again, or name the file: "
        "lockfile=...",
    )


def _parse(lock: bytes | str, pinned: bytes | str | None, source: str) -> KernelLocks:
    locks = KernelLocks.from_json(lock, source=source)
    if pinned is None:
        return locks
    return replace(locks, pins=read_pins(pinned, source=f"{PINS_FILE} next to {source}"))


def _calling_module() -> str:
    """Name of the nearest module up the stack outside of kernforge; empty for a script."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect reads every source file on the way
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in {"kernforge", ""}:
            spec = frame.f_globals.get("__spec__")
            return getattr(spec, "name", "") if name == "__main__" else name
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return ""


def _locks_of(module: str) -> Iterator[tuple[str | bytes, str | bytes | None, str]]:
    """Each lock that was installed with a module, its pins, and its name in errors."""
    import importlib.metadata  # noqa: PLC0415 - slow, only for the caller's lock

    parts = module.split(".") if module else []
    for name in importlib.metadata.packages_distributions().get(module.partition(".")[0], ()):
        distribution = importlib.metadata.distribution(name)
        text = distribution.read_text(FILE)
        if text is not None:
            yield text, distribution.read_text(PINS_FILE), f"{FILE} of {name}"
    for count in range(1, len(parts) + 1):
        spec = find_spec(".".join(parts[:count]))
        for directory in (spec and spec.submodule_search_locations) or ():
            path = Path(directory, FILE)
            if path.is_file():
                yield path.read_bytes(), _beside(path), str(path)


def _beside(lock: Path) -> bytes | None:
    """The content of ``kernforge-kernels.lock`` beside a lock; None where there is none."""
    path = lock.with_name(PINS_FILE)
    return path.read_bytes() if path.is_file() else None


def _unreadable(source: str, error: Exception) -> RequestError:
    reason = error.message if isinstance(error, RequestError) else error
    return RequestError(f"{source}: {reason}", hint=_HINT)


def _read_entries(document: Any) -> tuple[Pin, ...]:
    if not isinstance(document, list):
        raise TypeError("it is not a list of locked kernels")
    if any(isinstance(entry, dict) and "repo_id" in entry for entry in document):
        raise ValueError("it was written by kernels 0.16 or before")
    pins = {}
    for entry in document:
        table = _table(entry, {"dependency", "lock"})
        commit = _text(_table(table["lock"], {"commit"})["commit"])
        if not _COMMIT.fullmatch(commit):
            raise ValueError(f"{commit!r} is not a commit of 40 or 64 hex digits")
        depend = _read_depend(table["dependency"])
        pins[depend] = Pin(depend=depend, commit=commit.lower())
    if len(pins) != len(document):
        raise ValueError("a kernel is listed twice")
    return tuple(pins[depend] for depend in sorted(pins, key=sort_key))


def read_pins(data: bytes | str, *, source: str = PINS_FILE) -> tuple[Pin, ...]:
    """The locked kernels of ``kernforge-kernels.lock``; the inverse of ``pins_text``."""
    try:
        document = untrusted.parse_json(data)
        if document["format"] != FORMAT:
            raise ValueError(  # noqa: TRY301 - one error for all
                f"format {document['format']!r}, this kernforge knows {FORMAT}"
            )
        return tuple(
            Pin(
                depend=_read_depend(entry["dependency"]),
                commit=_text(entry["commit"]),
                asked=None if entry["asked"] is None else _text(entry["asked"]),
                release=None if entry["release"] is None else _text(entry["release"]),
                metadata={name: _text(digest) for name, digest in entry["metadata"].items()},
            )
            for entry in document["kernels"]
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(source, error) from None


def pins_text(pins: Collection[Pin]) -> str:
    """The text of ``kernforge-kernels.lock``, with a newline at the end."""
    kernels = [
        {
            "dependency": pin.depend.to_json(),
            "asked": pin.asked,
            "release": pin.release,
            "commit": pin.commit,
            "metadata": dict(sorted(pin.metadata.items())),
        }
        for pin in pins
    ]
    return json.dumps({"format": FORMAT, "kernels": kernels}, indent=2) + "\n"


def _read_depend(value: Any) -> KernelDepend:
    table = _table(value, {"repo-id"}, {"version", "revision"})
    repo_id, version, revision = table["repo-id"], table.get("version"), table.get("revision")
    if (version is None) == (revision is None):
        raise ValueError(f"{repo_id} needs a version or a revision, and not both")
    if version is not None and not (type(version) is int and 0 <= version < _VERSION_END):
        raise ValueError(f"{repo_id} has the version {version!r}, not a whole number")
    names.request(repo_id, version, revision)  # refuses names that no registry has
    return KernelDepend(repo_id=repo_id, version=version, revision=revision)


def _table(value: Any, keys: Collection[str], optional: Collection[str] = ()) -> dict[str, Any]:
    """A JSON object with these keys and no others."""
    if not isinstance(value, dict) or not {*keys} <= {*value} <= {*keys, *optional}:
        raise ValueError(f"{str(value)[:200]} is not an object of {', '.join((*keys, *optional))}")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a string")
    return value

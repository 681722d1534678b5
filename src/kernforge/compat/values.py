# SPDX-License-Identifier: Apache-2.0
"""The small values of the client: names, versions, dependencies, locks and paths.

The client has them in a compiled module, ``kernels._rust``; equality, order and errors are those of
0.17.2.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from kernforge import documents
from kernforge.artifact.metadata import KernelDepend
from kernforge.errors import RequestError
from kernforge.loader import kernels_lock
from kernforge.loader.pins import depend_json

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_NUMBERS = re.compile(r"[0-9]+(?:\.[0-9]+)*")

T = TypeVar("T")


class Backend(Enum):
    """What a build runs on."""

    CANN = "CANN"
    CPU = "CPU"
    CUDA = "CUDA"
    Metal = "Metal"
    Neuron = "Neuron"
    ROCm = "ROCm"
    TPU = "TPU"
    XPU = "XPU"

    @classmethod
    def from_str(cls, s: str) -> Backend:
        """The backend of a name, in any case of letters."""
        for backend in cls:
            if backend.value.lower() == s.lower():
                return backend
        raise RequestError(f"Unknown backend: {s}")

    def __str__(self) -> str:
        return self.value.lower()

    def __repr__(self) -> str:
        return f"Backend.{self.name}"


@functools.total_ordering
class Version:
    """A version of numbers; trailing zeros do not count."""

    def __init__(self, text: str) -> None:
        self._text = text
        parts = [int(part) for part in text.split(".")]
        while parts and parts[-1] == 0:
            parts.pop()
        self._parts = tuple(parts)

    @classmethod
    def from_str(cls, s: str) -> Version:
        """Parse ``X``, ``X.Y``, ``X.Y.Z`` and so on."""
        if not _NUMBERS.fullmatch(s):
            raise RequestError(f"Invalid version: {s!r}")
        return cls(s)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f"Version({self._text!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Version) and self._parts == other._parts

    def __lt__(self, other: Version) -> bool:
        return self._parts < other._parts

    def __hash__(self) -> int:
        return hash(self._parts)


@dataclass(frozen=True, repr=False)
class KernelName:
    """A kernel's name."""

    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise RequestError(
                f"Invalid kernel name: {self.name!r}", hint="write lower-case letters, digits and -"
            )

    @property
    def python_name(self) -> str:
        """The name with underscores."""
        return self.name.replace("-", "_")

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"KernelName({self.name!r})"


class KernelVersion:
    """What names a commit: a major version or a revision."""

    Version: ClassVar[type[_Major]]
    Revision: ClassVar[type[_Revision]]


@dataclass(frozen=True)
class _Major(KernelVersion):
    version: int


@dataclass(frozen=True)
class _Revision(KernelVersion):
    revision: str


_Major.__name__ = _Major.__qualname__ = "KernelVersion.Version"
_Revision.__name__ = _Revision.__qualname__ = "KernelVersion.Revision"
KernelVersion.Version = _Major
KernelVersion.Revision = _Revision


@dataclass(frozen=True)
class KernelDependency:
    """A kernel that another one, or a project, needs."""

    repo_id: str
    version: KernelVersion

    @classmethod
    def of(cls, depend: KernelDepend) -> KernelDependency:
        """The client's form of a requirement."""
        if depend.version is not None:
            return cls(depend.repo_id, _Major(depend.version))
        return cls(depend.repo_id, _Revision(depend.revision or ""))

    @property
    def ours(self) -> KernelDepend:
        """The requirement as the loader takes it."""
        match self.version:
            case _Major(version=version):
                return KernelDepend(repo_id=self.repo_id, version=version)
            case _Revision(revision=revision):
                return KernelDepend(repo_id=self.repo_id, revision=revision)
            case _:
                raise RequestError(f"Invalid version type: {self.version}")

    def to_dict(self) -> dict[str, Any]:
        """Its form in JSON documents."""
        return depend_json(self.ours)


def _parsed(s: str) -> Any:
    try:
        return documents.parse_json(s.encode())
    except ValueError as error:
        raise RequestError(f"Cannot parse JSON: {error}") from None


def _commit(text: object) -> str:
    if not isinstance(text, str) or not _COMMIT.fullmatch(text):
        raise RequestError(f"Invalid git object id: {text!r}", hint="write 40 or 64 hex digits")
    return text.lower()


@dataclass(frozen=True)
class KernelLock:
    """The commit to which a kernel is locked."""

    commit: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "commit", _commit(self.commit))

    @classmethod
    def from_json(cls, s: str) -> Self:
        """Parse it."""
        return cls.from_dict(_parsed(s))

    @classmethod
    def from_dict(cls, document: Any) -> Self:
        """The lock in a parsed document."""
        names = list(cls.__dataclass_fields__)
        if not isinstance(document, dict) or sorted(document) != sorted(names):
            raise RequestError(f"Cannot parse lock: expected an object with {', '.join(names)}")
        return cls(*(document[name] for name in names))

    def to_dict(self) -> dict[str, str]:
        """Its form in JSON documents."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def to_json(self) -> str:
        """It as JSON."""
        return json.dumps(self.to_dict(), indent=2)


@dataclass(frozen=True)
class NixKernelLock(KernelLock):
    """A lock with the hash of the files, for Nix."""

    hash: str

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.hash, str):
            raise RequestError(f"Invalid hash: {self.hash!r}")


class _ByDependency(Generic[T]):
    """A value for each dependency, in the order of repo ids and versions."""

    def __init__(self, values: Mapping[KernelDependency, T]) -> None:
        order = sorted(values, key=lambda dependency: kernels_lock.sort_key(dependency.ours))
        self._values: dict[KernelDependency, T] = {key: values[key] for key in order}

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, dependency: KernelDependency) -> T:
        return self._values[dependency]

    def __contains__(self, dependency: object) -> bool:
        return isinstance(dependency, KernelDependency) and dependency in self._values

    def __iter__(self) -> Iterator[KernelDependency]:
        return iter(self._values)

    def get(self, dependency: KernelDependency, default: T | None = None) -> T | None:
        """The value of a dependency."""
        return self._values.get(dependency, default)

    def keys(self) -> list[KernelDependency]:
        """The dependencies."""
        return list(self._values)

    def values(self) -> list[T]:
        """The values."""
        return list(self._values.values())

    def items(self) -> list[tuple[KernelDependency, T]]:
        """Both."""
        return list(self._values.items())

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self._values == getattr(other, "_values", None)

    def __hash__(self) -> int:
        return hash(tuple(self._values.items()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._values!r})"

    _KEY: ClassVar[str] = "lock"

    @classmethod
    def _read(cls, value: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def _written(cls, value: Any) -> Any:
        return value.to_dict()

    @classmethod
    def from_json(cls, s: str) -> Self:
        """Parse it."""
        document = _parsed(s)
        if not isinstance(document, list):
            raise RequestError("Cannot parse JSON: expected a list")
        values: dict[KernelDependency, Any] = {}
        for entry in document:
            if not isinstance(entry, dict) or set(entry) != {"dependency", cls._KEY}:
                raise RequestError(f"Cannot parse entry: expected dependency and {cls._KEY}")
            dependency = _dependency(entry["dependency"])
            if dependency in values:
                raise RequestError(f"Duplicate dependency: {dependency.repo_id}")
            values[dependency] = cls._read(entry[cls._KEY])
        return cls(values)

    def to_json(self) -> str:
        """It as JSON."""
        entries = [
            {"dependency": key.to_dict(), self._KEY: self._written(value)}
            for key, value in self._values.items()
        ]
        return json.dumps(entries, indent=2)


def _dependency(entry: Any) -> KernelDependency:
    if not isinstance(entry, dict) or not isinstance(entry.get("repo-id"), str):
        raise RequestError("Cannot parse dependency: expected repo-id")
    version, revision = entry.get("version"), entry.get("revision")
    if isinstance(version, int) and revision is None:
        return KernelDependency(entry["repo-id"], _Major(version))
    if isinstance(revision, str) and version is None:
        return KernelDependency(entry["repo-id"], _Revision(revision))
    raise RequestError("Cannot parse dependency: expected a version or a revision")


class KernelLocks(_ByDependency[KernelLock]):
    """The locks of a project."""

    def __init__(self, locks: Mapping[KernelDependency, KernelLock]) -> None:
        super().__init__(locks)

    @classmethod
    def _read(cls, value: Any) -> KernelLock:
        return KernelLock.from_dict(value)


class NixKernelLocks(_ByDependency[NixKernelLock]):
    """The locks of a project, with the hashes for Nix."""

    def __init__(self, locks: Mapping[KernelDependency, NixKernelLock]) -> None:
        super().__init__(locks)

    @classmethod
    def _read(cls, value: Any) -> NixKernelLock:
        return NixKernelLock.from_dict(value)


class KernelPaths(_ByDependency[Path]):
    """Directories in the place of kernels."""

    _KEY = "path"

    def __init__(self, paths: Mapping[KernelDependency, Any]) -> None:
        super().__init__({key: Path(path) for key, path in paths.items()})

    @classmethod
    def _read(cls, value: Any) -> Path:
        return Path(value)

    @classmethod
    def _written(cls, value: Any) -> str:
        return str(value)

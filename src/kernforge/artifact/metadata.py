# SPDX-License-Identifier: Apache-2.0
"""``metadata.json``, the description of one built variant.

The format is the hub's, as its client (``kernels`` 0.18) reads it and its builder writes it:
unknown keys are ignored, ``python-depends`` is required even if it is empty, invalid values in
``provenance`` and ``digest`` are errors. The client requires ``provenance.kernel-builder`` if there
is a ``provenance``, and ignores other keys of it; kernforge's own facts are in
``provenance.kernforge``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeAlias

from kernforge.errors import MetadataError
from kernforge.system import untrusted

CLIENT_VERSION = "0.18.2"
"""The version of the hub's client, ``kernels``, whose formats are read and written here.

``KERNFORGE_KERNELS_VERSION`` claims another one.
"""
FILE = "metadata.json"
SIGNATURE = f"{FILE}.sigstore"
"""Name of its signature, a file in the same directory."""
BACKENDS = ("cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu")
Algorithm: TypeAlias = Literal["sha256", "sha512"]

_NAME = re.compile(r"[a-z][-a-z0-9]*[a-z0-9]")
_MINVER = re.compile(r"\s*[0-9]+\.[0-9]+\.[0-9]+\s*")
_COMMIT = re.compile(r"[0-9a-fA-F]{40}(?:[0-9a-fA-F]{24})?")
_URL = re.compile(r"(?:git\+)?(?:https?|ssh)://[^\s/][^\s]*|git://[^\s/][^\s]*", re.IGNORECASE)
_SCP = re.compile(r"(?![A-Za-z][A-Za-z0-9+.-]*:)[^\s:]+:[^\s/][^\s]*")
_VERSION_END = 1 << 64
_MISSING = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The hashes of a variant's files.

    Attributes:
        algorithm: ``sha256`` (always written) or ``sha512``.
        files: hash in padded standard base64 by path in the variant, with ``/``; sorted by path.
    """

    algorithm: Algorithm = "sha256"
    files: Mapping[str, str]

    def to_json(self) -> dict[str, Any]:
        """The digest as ``metadata.json`` has it."""
        return {"algorithm": self.algorithm, "files": dict(sorted(self.files.items()))}


@dataclass(frozen=True, slots=True, kw_only=True)
class GitState:
    """A commit (40 or 64 lower-case hex digits), and whether tracked files differed from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The builder of the variant, and the sources.

    Attributes:
        builder_version: version in ``kernel-builder``, which the hub's client requires.
        builder: git state of the builder's own source, if known.
        kernel: git state of the kernel's source, if known.
        kernforge: other facts, JSON values by name, which other clients ignore.
    """

    builder_version: str
    builder: GitState | None = None
    kernel: GitState | None = None
    kernforge: Mapping[str, Any] = field(default_factory=dict)

    @property
    def dirty(self) -> bool:
        """Whether the sources differed from the recorded commits."""
        return any(state is not None and state.dirty for state in (self.builder, self.kernel))

    def to_json(self) -> dict[str, Any]:
        """The provenance as ``metadata.json`` has it."""
        builder = {
            "version": self.builder_version,
            **(asdict(self.builder) if self.builder else {}),
        }
        document: dict[str, Any] = {"kernel-builder": builder}
        if self.kernel is not None:
            document["kernel"] = asdict(self.kernel)
        if self.kernforge:
            document["kernforge"] = dict(self.kernforge)
        return document


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelDepend:
    """Another kernel that this kernel loads: exactly one of version and revision is given."""

    repo_id: str
    version: int | None = None
    revision: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The dependency as ``metadata.json`` and ``kernels.lock`` have it."""
        if self.version is not None:
            return {"repo-id": self.repo_id, "version": self.version}
        return {"repo-id": self.repo_id, "revision": self.revision}


@dataclass(frozen=True, slots=True, kw_only=True)
class Metadata:
    """The document of one variant.

    Attributes:
        name: name of the kernel, with dashes.
        id: ``_<python name>_<backend>_<unique id>``, the name of the extension module, of the op
            namespace and of the imported package.
        version: major version of the kernel.
        license: license, free text.
        backend: one of ``BACKENDS``.
        archs: architectures of the device code, such as ``("10.0", "7.5", "9.0+PTX")``; None if
            they are not recorded.
        python_depends: names of required Python packages, of the list in ``python_depends``.
        kernel_depends: kernels that this kernel loads.
        upstream: git URLs of the projects that the kernel comes from.
        source: git URL of the kernel project.
        kernels_minver: oldest version of the hub's client that can load the variant; None for old
            builds. If it is None, ``to_json`` writes the version that the document needs.
        digest: hashes of the files; None for old builds.
        provenance: builder and sources; None for old builds.
    """

    name: str
    id: str
    version: int
    license: str
    backend: str
    archs: tuple[str, ...] | None = None
    python_depends: tuple[str, ...] = ()
    kernel_depends: tuple[KernelDepend, ...] = ()
    upstream: tuple[str, ...] = ()
    source: str | None = None
    kernels_minver: str | None = None
    digest: Digest | None = None
    provenance: Provenance | None = None

    @property
    def python_name(self) -> str:
        """Name of the Python package: the kernel's name with underscores."""
        return self.name.replace("-", "_")

    @classmethod
    def from_json(cls, data: bytes, *, source: str = FILE) -> Metadata:
        """Parse the document.

        Raises:
            MetadataError: the document is invalid; the message has the file and the key.
        """
        try:
            document = untrusted.parse_json(data)
        except ValueError as error:
            raise MetadataError(f"{source} is not JSON: {error}", hint=_HINT) from None
        top = _Table(document, "the document", source)
        backend = top.table("backend")
        return cls(
            name=top.matching("name", _NAME, "a kernel name such as my-kernel"),
            id=top.text("id"),
            version=top.version("version"),
            kernels_minver=_minver(top),
            license=top.text("license"),
            upstream=_upstream(top),
            source=None if top.absent("source") else _git_url(top, "source", top.text("source")),
            python_depends=top.texts("python-depends"),
            kernel_depends=tuple(_kernel_depend(t) for t in top.tables("kernel-depends")),
            backend=backend.one_of("type", BACKENDS),
            archs=None if backend.absent("archs") else backend.texts("archs"),
            digest=None if top.absent("digest") else _digest(top.table("digest")),
            provenance=None if top.absent("provenance") else _provenance(top.table("provenance")),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Metadata:
        """``from_json`` by the name that the hub's client has for it."""
        return cls.from_json(data)

    def to_json(self) -> bytes:
        """The document as the hub's builder writes it: key order, two spaces, no last newline.

        Architectures are sorted as strings, so ``10.0`` comes before ``7.5``.
        """
        least = "0.17.0" if self.kernel_depends else "0.14.0"
        upstream: str | list[str] | None = self.upstream[0] if self.upstream else None
        if len(self.upstream) > 1:
            least, upstream = "0.18.0", list(self.upstream)
        backend: dict[str, Any] = {"type": self.backend}
        if self.archs is not None:
            backend["archs"] = sorted(set(self.archs))
        document = {
            "name": self.name,
            "id": self.id,
            "version": self.version,
            "kernels-minver": self.kernels_minver or least,
            "license": self.license,
            "upstream": upstream,
            "source": self.source,
            "python-depends": list(self.python_depends),
            "kernel-depends": [depend.to_json() for depend in self.kernel_depends],
            "backend": backend,
            "digest": self.digest and self.digest.to_json(),
            "provenance": self.provenance and self.provenance.to_json(),
        }
        present = {key: value for key, value in document.items() if value is not None}
        return json.dumps(present, indent=2, ensure_ascii=False).encode()


_HINT = "build the kernel again, or fetch it again"


class _Table:
    """A JSON object whose getters raise errors with the file and the key."""

    def __init__(self, value: object, where: str, source: str) -> None:
        if not isinstance(value, dict):
            raise MetadataError(f"{source}: {where} is not an object", hint=_HINT)
        self.value: dict[str, object] = value
        self.source = source

    def wrong(self, key: str, expected: str) -> MetadataError:
        """The error for a key whose value is missing or wrong."""
        value = self.value.get(key, _MISSING)
        if value is _MISSING:
            return MetadataError(
                f"{self.source} lacks {key!r}, which must be {expected}", hint=_HINT
            )
        shown = json.dumps(value)
        shown = shown if len(shown) <= 80 else f"{shown[:77]}..."  # noqa: PLR2004 - one line
        return MetadataError(f"{self.source}: {key!r} is {shown}, not {expected}", hint=_HINT)

    def absent(self, key: str) -> bool:
        return self.value.get(key) is None

    def text(self, key: str) -> str:
        value = self.value.get(key)
        if not isinstance(value, str):
            raise self.wrong(key, "a string")
        return value

    def matching(self, key: str, pattern: re.Pattern[str], expected: str) -> str:
        value = self.text(key)
        if not pattern.fullmatch(value):
            raise self.wrong(key, expected)
        return value

    def one_of(self, key: str, allowed: tuple[str, ...]) -> str:
        value = self.text(key)
        if value not in allowed:
            raise self.wrong(key, f"one of {', '.join(allowed)}")
        return value

    def flag(self, key: str) -> bool:
        value = self.value.get(key)
        if not isinstance(value, bool):
            raise self.wrong(key, "true or false")
        return value

    def version(self, key: str) -> int:
        value = self.value.get(key)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _VERSION_END:
            raise self.wrong(key, "a whole number from 0")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.value.get(key)
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise self.wrong(key, "a list of strings")
        return tuple(value)

    def table(self, key: str) -> _Table:
        if key not in self.value:
            raise self.wrong(key, "an object")
        return _Table(self.value[key], repr(key), self.source)

    def tables(self, key: str) -> list[_Table]:
        value = self.value.get(key, [])
        if not isinstance(value, list):
            raise self.wrong(key, "a list")
        return [_Table(item, f"an item of {key!r}", self.source) for item in value]


def _minver(top: _Table) -> str | None:
    if top.absent("kernels-minver"):
        return None
    text = top.matching("kernels-minver", _MINVER, "a version of three numbers such as 0.14.0")
    return ".".join(str(int(part)) for part in text.split("."))


def _upstream(top: _Table) -> tuple[str, ...]:
    """None, one as a text, or a list of them."""
    key = "upstream"
    if top.absent(key):
        return ()
    several = isinstance(top.value[key], list)
    return tuple(
        _git_url(top, key, text) for text in (top.texts(key) if several else (top.text(key),))
    )


def _git_url(top: _Table, key: str, text: str) -> str:
    """A URL, or ``host:path`` in the form of git and scp."""
    if not (_URL.fullmatch(text) or _SCP.fullmatch(text)):
        raise top.wrong(key, "a git URL (https, http, git, ssh) or host:path")
    return text


def _kernel_depend(table: _Table) -> KernelDepend:
    repo_id = table.text("repo-id")
    if table.absent("version") == table.absent("revision"):
        raise MetadataError(
            f"{table.source}: the kernel dependency {repo_id!r} must have either a version or a "
            "revision",
            hint=_HINT,
        )
    if table.absent("version"):
        return KernelDepend(repo_id=repo_id, revision=table.text("revision"))
    return KernelDepend(repo_id=repo_id, version=table.version("version"))


def _digest(table: _Table) -> Digest:
    files = table.table("files")
    algorithm: Algorithm = (
        "sha256" if table.one_of("algorithm", ("sha256", "sha512")) == "sha256" else "sha512"
    )
    return Digest(algorithm=algorithm, files={path: files.text(path) for path in files.value})


def _provenance(table: _Table) -> Provenance:
    builder = table.table("kernel-builder")
    return Provenance(
        builder_version=builder.text("version"),
        builder=_git_state(builder, required=False),
        kernel=None if table.absent("kernel") else _git_state(table.table("kernel"), required=True),
        kernforge={} if table.absent("kernforge") else dict(table.table("kernforge").value),
    )


def _git_state(table: _Table, *, required: bool) -> GitState | None:
    """Commit and dirty, both or neither; old builds have ``sha`` for ``commit``."""
    key = "sha" if "sha" in table.value else "commit"
    if not required and not {key, "dirty"} & set(table.value):
        return None
    if {"sha", "commit"} <= set(table.value):
        raise MetadataError(
            f"{table.source}: 'sha' and 'commit' have the same meaning; one is allowed", hint=_HINT
        )
    commit = table.matching(key, _COMMIT, "a commit of 40 or 64 hex digits, with a key 'dirty'")
    return GitState(commit=commit.lower(), dirty=table.flag("dirty"))


class PythonDepend(NamedTuple):
    """A Python package that a kernel may depend on: a closed list, the same as the hub's.

    Attributes:
        package: name of the package for pip.
        module: name of the module to import; None for a package without Python code.
    """

    package: str
    module: str | None


_GENERAL = {
    "einops": PythonDepend("einops", "einops"),
    "helion": PythonDepend("helion", "helion"),
    "tvm-ffi": PythonDepend("apache-tvm-ffi", "tvm_ffi"),
}
_OF_BACKEND = {
    "cuda": {"nvidia-cutlass-dsl": PythonDepend("nvidia-cutlass-dsl", "cutlass")},
    "neuron": {"nki": PythonDepend("nki", "nki")},
    "xpu": {"onednn": PythonDepend("onednn-devel", None)},
}


def python_depends(backend: str) -> dict[str, PythonDepend]:
    """The packages that a kernel of this backend may depend on, by their name in the metadata."""
    return _GENERAL | _OF_BACKEND.get(backend, {})

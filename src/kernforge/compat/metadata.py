# SPDX-License-Identifier: Apache-2.0
"""``metadata.json``, digests and ``build.toml`` in the shapes that the client gives them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from kernforge.artifact import integrity
from kernforge.artifact import metadata as ours
from kernforge.compat.values import Backend, KernelDependency, KernelName, Version
from kernforge.errors import KernforgeError, RequestError

if TYPE_CHECKING:
    import os


@dataclass(frozen=True)
class BackendInfo:
    """A build's backend and the architectures of its device code."""

    backend_type: Backend
    archs: list[str] | None = field(default=None, hash=False)


@dataclass(frozen=True)
class GitStatus:
    """A commit, and whether tracked files differed from it."""

    commit: str
    dirty: bool


@dataclass(frozen=True)
class KernelBuilderVersion:
    """What built a kernel."""

    version: str
    git: GitStatus | None


@dataclass(frozen=True)
class Provenance:
    """What built a kernel, of which sources."""

    kernel_builder: KernelBuilderVersion
    kernel: GitStatus | None

    @property
    def dirty(self) -> bool:
        """Whether the sources of either differed from the recorded commits."""
        states = (self.kernel_builder.git, self.kernel)
        return any(state is not None and state.dirty for state in states)


class DigestAlgorithm(Enum):
    """A hash."""

    SHA256 = "SHA256"
    SHA512 = "SHA512"

    def __str__(self) -> str:
        return self.value.lower()

    def __repr__(self) -> str:
        return f"DigestAlgorithm.{self.name}"


class DigestViolation:
    """A difference between two digests."""

    MissingFile: ClassVar[type[_MissingFile]]
    UnknownFile: ClassVar[type[_UnknownFile]]
    HashMismatch: ClassVar[type[_HashMismatch]]
    AlgorithmMismatch: ClassVar[type[_AlgorithmMismatch]]


@dataclass(frozen=True)
class _MissingFile(DigestViolation):
    path: str

    def __str__(self) -> str:
        return f"Missing file: {self.path}"


@dataclass(frozen=True)
class _UnknownFile(DigestViolation):
    path: str

    def __str__(self) -> str:
        return f"Unknown file: {self.path}"


@dataclass(frozen=True)
class _HashMismatch(DigestViolation):
    path: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"File hash mismatch for {self.path}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True)
class _AlgorithmMismatch(DigestViolation):
    expected: DigestAlgorithm
    got: DigestAlgorithm

    def __str__(self) -> str:
        return f"Digest algorithm mismatch: expected {self.expected}, got {self.got}"


DigestViolation.MissingFile = _MissingFile
DigestViolation.UnknownFile = _UnknownFile
DigestViolation.HashMismatch = _HashMismatch
DigestViolation.AlgorithmMismatch = _AlgorithmMismatch


class DigestValidationError(Exception):
    """Two digests differ."""

    def __init__(self, violations: list[DigestViolation]) -> None:
        lines = "\n".join(f"- {violation}" for violation in violations)
        super().__init__(f"kernel does not match the expected digest:\n{lines}")
        self.violations = violations


@dataclass(frozen=True)
class Digest:
    """The hashes of a variant's files, in base64, by path."""

    algorithm: DigestAlgorithm
    files: dict[str, str] = field(hash=False)

    @staticmethod
    def hash_variant(algorithm: DigestAlgorithm, variant_path: os.PathLike[str] | str) -> Digest:
        """Hash the files of a variant.

        Raises:
            IntegrityError: a file is not a regular one.
            OSError: a file cannot be read.
        """
        name: ours.Algorithm = "sha512" if algorithm is DigestAlgorithm.SHA512 else "sha256"
        digest = integrity.digest_tree(Path(variant_path), algorithm=name)
        return Digest(algorithm, dict(digest.files))

    def validate(self, other: Digest) -> None:
        """Compare another digest with this one, which is what is expected.

        Raises:
            DigestValidationError: they differ; it has each difference.
        """
        if self.algorithm is not other.algorithm:
            raise DigestValidationError([_AlgorithmMismatch(self.algorithm, other.algorithm)])
        violations: list[DigestViolation] = []
        for path, expected in sorted(self.files.items()):
            got = other.files.get(path)
            if got is None:
                violations.append(_MissingFile(path))
            elif got != expected:
                violations.append(_HashMismatch(path, expected, got))
        violations += [_UnknownFile(path) for path in sorted(set(other.files) - set(self.files))]
        if violations:
            raise DigestValidationError(violations)


class Metadata:
    """A build's ``metadata.json``."""

    def __init__(self, document: ours.Metadata) -> None:
        self.ours = document
        self.id = document.id
        self.version: int | None = document.version
        self.license: str | None = document.license
        self.upstream = document.upstream
        self.source = document.source
        self.python_depends = list(document.python_depends)
        self.kernel_depends = [KernelDependency.of(d) for d in document.kernel_depends]

    @classmethod
    def read_from_file(cls, metadata_path: os.PathLike[str] | str) -> Metadata:
        """Read a file.

        Raises:
            IntegrityError: it is not such a document; also a ValueError.
            OSError: it cannot be read.
        """
        path = Path(metadata_path)
        return cls(ours.Metadata.from_json(path.read_bytes(), source=str(path)))

    @classmethod
    def from_bytes(cls, data: bytes) -> Metadata:
        """Parse it.

        Raises:
            IntegrityError: it is not such a document; also a ValueError.
        """
        return cls(ours.Metadata.from_json(data))

    @cached_property
    def name(self) -> KernelName:
        """The kernel's name."""
        return KernelName(self.ours.name)

    @cached_property
    def kernels_minver(self) -> Version | None:
        """The oldest client that can load it."""
        text = self.ours.kernels_minver
        return None if text is None else Version.from_str(text)

    @cached_property
    def backend(self) -> BackendInfo:
        """What it runs on."""
        archs = None if self.ours.archs is None else list(self.ours.archs)
        return BackendInfo(Backend.from_str(self.ours.backend), archs)

    @cached_property
    def digest(self) -> Digest | None:
        """The hashes of its files."""
        digest = self.ours.digest
        if digest is None:
            return None
        return Digest(DigestAlgorithm[digest.algorithm.upper()], dict(digest.files))

    @cached_property
    def provenance(self) -> Provenance | None:
        """What built it, of which sources."""
        known = self.ours.provenance
        if known is None:
            return None
        builder = KernelBuilderVersion(known.builder_version, _git(known.builder))
        return Provenance(builder, _git(known.kernel))

    def __repr__(self) -> str:
        return f"Metadata({self.ours!r})"


def _git(state: ours.GitState | None) -> GitStatus | None:
    return None if state is None else GitStatus(state.commit, state.dirty)


class General:
    """What of ``build.toml`` holds for all backends."""

    def __init__(self, backends: list[Backend]) -> None:
        self.backends = backends


class Build:
    """A kernel's ``build.toml``."""

    def __init__(self, manifest: Any) -> None:
        self._manifest = manifest
        self.general = General([Backend.from_str(name) for name in manifest.general.backends])

    @classmethod
    def open(cls, kernel_dir: os.PathLike[str] | str) -> Build:
        """Read it from a project's directory.

        Raises:
            RequestError: it is missing or wrong; also a ValueError.
        """
        from kernforge.manifest import document  # noqa: PLC0415 - few applications read one

        path = Path(kernel_dir) / "build.toml"
        try:
            return cls(document.parse(path.read_text(), source=str(path)))
        except (KernforgeError, OSError) as error:
            raise RequestError(f"Cannot parse TOML in {path}: {error}") from error

    def all_kernel_depends(self, backend: Backend) -> list[KernelDependency]:
        """The kernels that all builds, and those for a backend, need."""
        depends = self._manifest.general.kernel_depends_for(str(backend))
        return [
            KernelDependency.of(
                ours.KernelDepend(repo_id=d.repo_id, version=d.version, revision=d.revision)
            )
            for d in depends
        ]

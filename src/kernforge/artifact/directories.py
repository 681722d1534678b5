# SPDX-License-Identifier: Apache-2.0
"""Find built variants in a directory or its ``build/``, and refuse sets that do not match."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from kernforge.artifact.integrity import DOCUMENT, read_file, tree_files, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.artifact.variant import Variant
from kernforge.errors import RegistryError, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltVariant:
    """A built variant on this machine.

    Attributes:
        link_root: directory that symbolic links must not leave.
    """

    path: Path
    link_root: Path
    metadata: Metadata

    @classmethod
    def read(cls, path: Path, root: Path | None = None) -> Self:
        """The variant in a directory."""
        source, within = path / FILE, root or link_root(path)
        metadata = Metadata.from_json(read_file(source, within=within), source=str(source))
        return cls(path=path, link_root=within, metadata=metadata)

    @property
    def variant(self) -> Variant:
        """The variant of the directory's name."""
        return Variant.parse(self.path.name)

    def read_file(self, name: str, most: int = DOCUMENT) -> bytes:
        """The bytes of a file, see ``integrity.read_file``."""
        return read_file(self.path / name, within=self.link_root, most=most)

    def verified_files(self) -> dict[str, Path]:
        """The files, by path, compared with the digest if there is one."""
        if self.metadata.digest is not None:
            verify_tree(self.path, self.metadata.digest, within=self.link_root)
        return tree_files(self.path, within=self.link_root)


def link_root(path: Path) -> Path:
    """The directory that a variant's links may not leave: in a cache or registry, the kernel's."""
    caches = (p for p in path.parents if p.name.startswith(("kernels--", "models--")))
    return next(caches, path)


def variants(directory: Path) -> tuple[Path, ...]:
    """The built variants of a project or of a directory, or the directory itself if it is one."""
    if (directory / FILE).exists():
        return (directory,)
    for base in (directory, directory / "build"):
        if paths := sorted(path.parent for path in base.glob(f"*/{FILE}")):
            return tuple(paths)
    problem = "has no built variant" if directory.is_dir() else "is not a directory"
    raise UsageError(
        f"{directory} {problem}",
        hint="build with `kernforge build`, or name a project, a directory of variants or a "
        "variant",
    )


def directory_of(where: str) -> Path | None:
    """The directory that a command's argument names; None for a repo id ``owner/name``.

    If a directory ``owner/name`` exists, it is taken.
    """
    path = Path(where)
    if path.is_dir():
        return path
    if path.exists() or where.count("/") != 1 or where.startswith((".", "/", "~")):
        problem = "is a file, not a directory" if path.exists() else "is not a directory"
        raise UsageError(f"{where} {problem}", hint="name a directory, or a kernel as owner/name")
    return None


def refuse_mixture(built: Collection[BuiltVariant], version: str | None) -> None:
    """Refuse variants of several kernels or major versions.

    Args:
        version: a version ``X.Y.Z`` for all of them; its major version must be theirs.
    """
    kernels = {(each.metadata.name, each.metadata.version) for each in built}
    if len(kernels) > 1:
        listing = "; ".join(
            f"{each.path.name} is {each.metadata.name} version {each.metadata.version}"
            for each in built
        )
        raise RegistryError(
            f"the variants are not of one kernel and version: {listing}",
            hint="remove the old variants from the build directory, or build all again",
        )
    for _, major in kernels:
        if version is not None and version.split(".")[0] != str(major):
            raise UsageError(
                f"version {version} does not begin with {major}, the major version of the build",
                hint=f"use {major}.Y.Z, or raise version in build.toml and build again",
            )


def other_sources(built: Mapping[str, Metadata], project: str | None) -> str | None:
    """The problem of variants that are not all built from the same sources; None without.

    Variants whose build did not record their sources are not compared.

    Args:
        project: the digest of the project's current sources; None without a project.
    """
    recorded = {
        name: str(metadata.provenance.kernforge["sources"])
        for name, metadata in sorted(built.items())
        if metadata.provenance is not None and "sources" in metadata.provenance.kernforge
    }
    if project is None and len(set(recorded.values())) > 1:
        listing = ", ".join(f"{name} of {sources[:10]}" for name, sources in recorded.items())
        return f"the variants are of different sources: {listing}"
    if stale := [name for name, sources in recorded.items() if project not in {None, sources}]:
        return f"built from other sources than the project has now: {', '.join(stale)}"
    return None

# SPDX-License-Identifier: Apache-2.0
"""Find built variants: those in a directory, those in its ``build/``, or the directory itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import RegistryError, UsageError


def variants(directory: Path) -> tuple[Path, ...]:
    """The built variants of a project or of a directory, or the directory itself if it is one.

    Raises:
        UsageError: the directory has no variant.
    """
    if (directory / FILE).is_file():
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

    Raises:
        UsageError: the argument is a file or a path that does not exist.
    """
    path = Path(where)
    if path.is_dir():
        return path
    if path.exists() or where.count("/") != 1 or where.startswith((".", "/", "~")):
        problem = "is a file, not a directory" if path.exists() else "is not a directory"
        raise UsageError(f"{where} {problem}", hint="name a directory, or a kernel as owner/name")
    return None


def refuse_mixture(built: Mapping[str, Metadata], version: str | None) -> None:
    """Refuse variants of several kernels or major versions.

    Args:
        built: the metadata of each variant, by name.
        version: a version ``X.Y.Z`` for all of them; its major version must be theirs.

    Raises:
        RegistryError: the variants are not of one kernel and major version.
        UsageError: the version has another major version.
    """
    kernels = {(metadata.name, metadata.version) for metadata in built.values()}
    if len(kernels) > 1:
        listing = "; ".join(f"{v} is {m.name} version {m.version}" for v, m in built.items())
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
    """What is wrong where variants are not all built from the same sources; None if they are.

    Variants whose build did not record their sources are not compared.

    Args:
        built: their documents by name.
        project: the digest of the project's sources as they are now; None without a project.
    """
    recorded = {
        name: str(document.provenance.kernforge["sources"])
        for name, document in sorted(built.items())
        if document.provenance is not None and "sources" in document.provenance.kernforge
    }
    if project is not None:
        stale = [name for name, sources in recorded.items() if sources != project]
        if stale:
            return f"built from other sources than the project has now: {', '.join(stale)}"
    elif len(set(recorded.values())) > 1:
        listing = ", ".join(f"{name} of {sources[:10]}" for name, sources in recorded.items())
        return f"the variants are of different sources: {listing}"
    return None

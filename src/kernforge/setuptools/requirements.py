# SPDX-License-Identifier: Apache-2.0
"""What a project needs to be built, without torch; and source distributions of the index."""

from __future__ import annotations

import contextlib
import importlib.metadata
import io
import sys
import tomllib
from typing import TYPE_CHECKING, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from kernforge.errors import IntegrityError, ToolchainError, UsageError
from kernforge.system import archives, files
from kernforge.system.digest import sha256
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from kernforge.toolchain.index.index import Index

# The stand-in answers for them, or kernforge does what they do.
_NOT_FETCHED = frozenset({"torch", "torchvision", "torchaudio", "triton", "ninja"})
_LEGACY = ("setuptools>=40.8.0", "wheel")
SDISTS = (".tar.gz", ".tar.xz", ".tar.bz2", ".tgz", ".zip")
"""Suffixes of source distributions."""


def of_project(directory: Path) -> tuple[str, ...]:
    """What a project needs to be built, without torch and what comes with kernforge.

    Raises:
        UsageError: there is neither ``pyproject.toml`` nor ``setup.py``, or the former is not
            valid.
    """
    about = directory / "pyproject.toml"
    listed: Any = _LEGACY
    if about.is_file():
        try:
            system = tomllib.loads(about.read_text(encoding="utf-8")).get("build-system", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise UsageError(f"{about} is not valid TOML: {error}") from error
        listed = system.get("requires", _LEGACY) if isinstance(system, dict) else None
        if not isinstance(listed, list | tuple) or not all(isinstance(t, str) for t in listed):
            raise UsageError(f"{about}: requires of [build-system] is not a list of texts")
    elif not (directory / "setup.py").is_file():
        raise UsageError(
            f"{directory} has neither setup.py nor pyproject.toml", hint="name a Python project"
        )
    wanted: list[str] = []
    for text in listed:
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise UsageError(f"{about}: {text!r} is not a requirement: {error}") from error
        applies = requirement.marker is None or requirement.marker.evaluate()
        if applies and canonicalize_name(requirement.name) not in _NOT_FETCHED:
            wanted.append(text)
    return tuple(wanted)


def other_torch(directory: Path, release: str) -> tuple[str, ...]:
    """What a project asks of torch, to be built or to run, and a release of torch is not."""
    about = directory / "pyproject.toml"
    data = tomllib.loads(about.read_text(encoding="utf-8")) if about.is_file() else {}
    listed: list[Any] = []
    for table, key in (("build-system", "requires"), ("project", "dependencies")):
        found = data.get(table, {})
        listed += found.get(key, ()) if isinstance(found, dict) else ()
    texts: list[str] = []
    for text in filter(lambda each: isinstance(each, str), listed):
        with contextlib.suppress(InvalidRequirement):
            wanted = Requirement(text)
            if canonicalize_name(wanted.name) == "torch" and not wanted.specifier.contains(
                release, prereleases=True
            ):
                texts.append(text)
    return tuple(dict.fromkeys(texts))


def install_missing(wanted: Iterable[str], directory: Path, variables: Mapping[str, str]) -> None:
    """Let pip install what neither this Python nor a directory has into that directory.

    Raises:
        ToolchainError: pip failed.
    """
    missing = [text for text in wanted if not _is_here(Requirement(text), directory)]
    if not missing:
        return
    argv = (
        *(sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"),
        *("--no-input", "--target", str(directory), *missing),
    )
    done = run(Command(argv=argv, env=variables))
    if done.returncode != 0:
        raise ToolchainError(
            f"pip cannot install what the project needs to be built ({', '.join(missing)}):\n"
            f"{done.stderr.strip()}",
            hint="install it into this environment by hand, or check pip's configuration",
        )


def _is_here(requirement: Requirement, directory: Path) -> bool:
    path = [str(directory), *sys.path]
    found = importlib.metadata.distributions(name=requirement.name, path=path)
    version = next((each.version for each in found), None)
    if version is None or requirement.url:
        return False
    return requirement.specifier.contains(version, prereleases=True)


def fetch_sdist(requirement: Requirement, index: Index, directory: Path) -> Path:
    """Fetch the newest source distribution that a requirement admits, and unpack it.

    Args:
        directory: a new directory.

    Returns:
        The project's directory.

    Raises:
        IntegrityError: the file is not what the index promises.
        ToolchainError: no index has one.
    """
    found = [
        each
        for each in index.sdists(requirement.name)
        if requirement.specifier.contains(each.version)
    ]
    if not found:
        raise ToolchainError(
            f"no configured package index has a source distribution of {requirement}",
            hint="name a directory with its sources, or a file",
        )
    newest = max(found, key=lambda each: each.version)
    data = index.transport.body(newest.url).read()
    if newest.sha256 and sha256(data) != newest.sha256:
        raise IntegrityError(f"{newest.file} is not what the index promises ({newest.sha256})")
    return unpack(newest.file, data, directory)


def has_wheel(requirement: Requirement, index: Index, tags: frozenset[str]) -> bool:
    """Whether the newest release that a requirement admits has a wheel with one of these tags."""
    wheels = index.wheels(requirement.name)
    versions = {w.version for w in wheels} | {s.version for s in index.sdists(requirement.name)}
    newest = max(filter(requirement.specifier.contains, versions), default=None)
    return any(w.version == newest and {str(tag) for tag in w.tags} & tags for w in wheels)


def unpack(name: str, data: bytes, directory: Path) -> Path:
    """Unpack a source distribution.

    Args:
        name: of the file.
        directory: a new directory.

    Returns:
        The one directory at its top.

    Raises:
        IntegrityError: it is damaged, too large, or leads out of the directory.
        UsageError: it is not a source distribution.
    """
    files.make_dir(directory)
    unpacked = archives.unpack_zip if name.endswith(".zip") else archives.unpack_tar
    unpacked(io.BytesIO(data), directory, name, limit=archives.LARGEST_SOURCES)
    tops = sorted(directory.iterdir())
    if len(tops) != 1:
        raise UsageError(
            f"{name} is not a source distribution: it has {len(tops)} files and directories at its "
            "top"
        )
    return tops[0]

# SPDX-License-Identifier: Apache-2.0
"""Read a kernel project: its manifest, its files and its git state."""

from __future__ import annotations

import functools
import os
import posixpath
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.artifact.gpu import CAPABILITIES, Arch
from kernforge.artifact.metadata import GitState
from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError, UsageError
from kernforge.manifest import document as manifests, sources
from kernforge.manifest.document import Manifest
from kernforge.manifest.mistakes import Mistake, report
from kernforge.manifest.model import CudaKernel, Path as Place, Torch
from kernforge.project import git, units
from kernforge.project.units import Sources
from kernforge.system import untrusted_tree

MANIFEST = "build.toml"
# What holds no sources: caches and environments anywhere, results at the top.
_SKIPPED = {"node_modules", "__pycache__"}
_RESULTS = {"build", "dist", "result"}
_LARGEST_DOCUMENT = 16 << 20
# torch/csrc/stable is in torch's wheels since then.
_FIRST_STABLE = Version2(2, 9)
_ARCH = re.compile(r"\d+\.\d[af]?(?:\+PTX)?")


@dataclass(frozen=True, kw_only=True)
class Project:
    """A kernel project as it is on the disk.

    Attributes:
        manifest: its build.toml, with the files in the place of patterns.
        files: every file below the root that could be a source, by relative path.
        git: None outside a git checkout.
    """

    root: Path
    manifest: Manifest
    manifest_text: str
    files: Mapping[str, Path]
    git: GitState | None

    @functools.cached_property
    def sources(self) -> Sources:
        """The files as a plan sees them, read once."""
        return units.read(self.manifest, self.files)


def find(start: Path) -> Path:
    """Find the root of the project that contains a directory.

    Raises:
        UsageError: there is no such directory, or no build.toml in it or above.
    """
    if not start.exists():
        raise UsageError(
            f"there is no directory {start}",
            hint="name the project's directory, or make a project with `kernforge new NAME`",
        )
    start = start.resolve()
    for directory in (start, *start.parents):
        if (directory / MANIFEST).is_file():
            return directory
    setup = (start / "setup.py").is_file()
    raise UsageError(
        f"no {MANIFEST} in {start} or above",
        hint="a setup.py project needs none: `kernforge pip install .` installs it, `kernforge "
        "wheel` makes its wheels; `kernforge adopt` converts it"
        if setup
        else "name the project's directory, or make a project with `kernforge new NAME`",
    )


def read_project(directory: Path) -> Project:
    """Read the project that holds a directory.

    Raises:
        IntegrityError: a link leads out of it, or something in it is not a file.
        ManifestError: its build.toml is wrong, or names a file that is not there.
        UsageError: there is none.
    """
    root = find(directory)
    path, repository = root / MANIFEST, git.find(root)
    try:
        text = (read_document(root, MANIFEST) or b"").decode()
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8: {error}") from error
    manifest = manifests.parse(text, source=str(path))
    # A link may lead to another file of the project; one to nothing is not read at all.
    files = {
        name: path
        for name, path in walk(root, _named(manifest))
        if untrusted_tree.inside(root, path)
    }
    mistakes, notes = check_values(manifest)
    if mistakes := [*mistakes, *sources.check_files(manifest, files)]:
        data = manifests.read_data(text, source=str(path))
        bare = text.removeprefix("\ufeff")
        raise ManifestError(report(mistakes, data, text=bare, source=str(path)))
    manifest = replace(sources.expanded(manifest, files), notes=(*manifest.notes, *notes))
    state = git.state(repository, root, _built(manifest, files)) if repository else None
    return Project(root=root, manifest=manifest, manifest_text=text, files=files, git=state)


def read_document(root: Path, name: str) -> bytes | None:
    """A document at the top of a project; None where there is none."""
    path = root.resolve() / name
    if not path.is_symlink() and not path.exists():
        return None
    real = untrusted_tree.inside(root.resolve(), path)
    if real is None:
        return None
    below = real.relative_to(root.resolve()).as_posix()
    return untrusted_tree.read_bytes(
        root.resolve(), below, limit=_LARGEST_DOCUMENT, hard_links=True
    )


def _named(manifest: Manifest) -> set[str]:
    """Files and directories that the manifest names."""
    paths = (path for table in manifest.source_tables for path in (*table.src, *table.include))
    return {posixpath.normpath(path) for path in paths}


def _built(manifest: Manifest, files: Iterable[str]) -> list[str]:
    """Files that a build may read: named in the manifest, headers, the Python package."""
    named, package = _named(manifest) | {MANIFEST}, units.package_dir(manifest)
    return [
        path
        for path in files
        if path in named or path.endswith(units.HEADER_SUFFIXES) or path.startswith(package)
    ]


def is_skipped(path: Path) -> bool:
    """Whether a directory is hidden, a cache, metadata or an environment, so without sources."""
    if path.name.startswith(".") or path.name.endswith(".egg-info") or path.name in _SKIPPED:
        return True
    return (path / "pyvenv.cfg").is_file()


def walk(root: Path, named: Collection[str] = ()) -> Iterator[tuple[str, Path]]:
    """Files that may be sources, by path; links are not followed.

    Hidden names, caches, environments, and results at the top are left out, but for directories
    that are ``named``.
    """

    def holds_sources(directory: str, name: str) -> bool:
        path = os.path.relpath(os.path.join(directory, name), root)  # noqa: PTH118 - many files
        if any(f"{name}/".startswith(f"{path}/") for name in named):
            return True
        if is_skipped(Path(directory, name)):
            return False
        return name not in _RESULTS or directory != str(root)

    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if holds_sources(directory, name))
        for name in sorted(files):
            if not name.startswith(".") and not name.endswith((".pyc", "~")):
                path = Path(directory, name)
                yield path.relative_to(root).as_posix(), path


def folder(project: Project) -> str:
    """Path of a project in its git checkout; empty at the top, or without a checkout."""
    repository = git.find(project.root) if project.git else None
    if repository is None or project.root.resolve() == repository.top:
        return ""
    return project.root.resolve().relative_to(repository.top).as_posix()


def tagged_version(project: Project) -> str | None:
    """Version of the checked-out commit by its git tag ``vX.Y.Z``, if there is one."""
    repository = git.find(project.root)
    if repository is None or project.git is None or project.git.dirty:
        return None
    pattern = rf"v({project.manifest.general.version}\.\d+\.\d+)"
    versions = [match[1] for tag in git.tags(repository) if (match := re.fullmatch(pattern, tag))]
    return max(versions, key=lambda version: tuple(map(int, version.split("."))), default=None)


def benchmarks(project: Project) -> dict[str, Path]:
    """Benchmark scripts for the published kernel, by file name."""
    matches = (re.fullmatch(r"benchmarks/(benchmark[^/]*\.py)", path) for path in project.files)
    return {match[1]: project.files[match[0]] for match in matches if match}


def check_values(manifest: Manifest) -> tuple[list[Mistake], list[str]]:
    """Find stable ABIs that never were, and compute capabilities of no GPU.

    Returns:
        Mistakes, and a note for each capability of no GPU that is left out beside those of GPUs.
    """
    mistakes, notes = list(_stable_abi(manifest)), []
    for name, section in manifest.kernels.items():
        named = (section.cuda_capabilities or ()) if isinstance(section, CudaKernel) else ()
        problems = [_problem(text) for text in named]
        for number, (text, problem) in enumerate(zip(named, problems, strict=True)):
            if not problem:
                continue
            if "" not in problems or text.endswith("+PTX") or not _ARCH.fullmatch(text):
                path: Place = ("kernel", name, "cuda-capabilities", number)
                mistakes.append(Mistake(path=path, problem=problem))
            else:
                notes.append(f"[kernel.{name}] cuda-capabilities {text} is left out: {problem}")
    return mistakes, notes


def _stable_abi(manifest: Manifest) -> Iterator[Mistake]:
    framework = manifest.framework
    if not isinstance(framework, Torch) or framework.stable_abi is None:
        return
    path: Place = ("torch", "stable-abi")
    stated = framework.stable_abi
    versions = (
        {path: stated}
        if isinstance(stated, Version2)
        else {(*path, backend): version for backend, version in stated.items()}
    )
    for where, version in versions.items():
        if version < _FIRST_STABLE:
            yield Mistake(
                path=where,
                problem=f"torch {version} has no stable ABI; it begins with {_FIRST_STABLE}. "
                "Remove the key to build one variant for each torch",
            )


def _problem(text: str) -> str:
    """Why a compute capability cannot be compiled for; empty if it can."""
    try:
        arch = Arch.parse(text)
    except ManifestError as error:
        return f"not a compute capability; {error.hint}"
    if arch.capability in CAPABILITIES:
        return ""
    return f"no GPU has the compute capability {arch.capability}"

# SPDX-License-Identifier: Apache-2.0
"""Read a kernel project: its manifest, its files and its git state."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import GitState
from kernforge.errors import ManifestError, UsageError
from kernforge.manifest import document as manifests
from kernforge.manifest.document import TorchNoarch
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.manifest.document import Manifest
    from kernforge.system.process import Runner

MANIFEST = "build.toml"
# What holds no sources: caches anywhere, results at the top.
_SKIPPED = {"node_modules", "__pycache__"}
_RESULTS = {"build", "dist", "result"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A kernel project as it is on the disk.

    Attributes:
        root: its directory.
        manifest: its build.toml.
        manifest_text: the same as text.
        files: every file below the root that could be a source, by relative path.
        git: None outside a git checkout.
    """

    root: Path
    manifest: Manifest
    manifest_text: str
    files: Mapping[str, Path]
    git: GitState | None


def find(start: Path) -> Path:
    """Root of the project that holds this directory.

    Raises:
        UsageError: there is no such directory, or no build.toml in it or above.
    """
    if not start.exists():
        # What holds it may be a project, and is not the one that was meant.
        siblings = [path.parent.name for path in start.absolute().parent.glob(f"*/{MANIFEST}")]
        near = difflib.get_close_matches(start.name, siblings, n=1, cutoff=0.6)
        raise UsageError(
            f"there is no directory {start}",
            hint=f"did you mean {start.with_name(near[0])}?"
            if near
            else "name the project's directory, or make a project with `kernforge new NAME`",
        )
    start = start.resolve()
    for directory in (start, *start.parents):
        if (directory / MANIFEST).is_file():
            return directory
    raise UsageError(
        f"no {MANIFEST} in {start} or above",
        hint="name the project's directory, or make a project with `kernforge new NAME`",
    )


def read_project(directory: Path) -> Project:
    """Read the project that holds a directory.

    Raises:
        ManifestError: its build.toml is wrong, or names a file that is not there.
        UsageError: there is none.
    """
    return read(find(directory), run)


def read(root: Path, runner: Runner) -> Project:
    """Read a project.

    Raises:
        ManifestError: its build.toml is wrong, or names a file that is not there.
    """
    path = root / MANIFEST
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(f"{path} is not UTF-8: {error}") from error
    manifest = manifests.parse(text, source=str(path))
    found = dict(_walk(root, _named(manifest)))
    mistakes = manifests.check_files(manifest, found)
    if mistakes:
        raise ManifestError("\n".join(f"{path}: {mistake}" for mistake in mistakes))
    return Project(
        root=root,
        manifest=manifest,
        manifest_text=text,
        files=found,
        git=_git_state(root, runner),
    )


def _named(manifest: Manifest) -> set[str]:
    """Files and directories that the manifest names, which are read wherever they are."""
    tables = [*manifest.kernels.values()]
    paths = {path for table in tables for path in (*table.src, *table.include)}
    if not isinstance(manifest.framework, TorchNoarch):
        paths |= {*manifest.framework.src, *manifest.framework.include}
    return {posixpath.normpath(path) for path in paths}


def _walk(root: Path, named: set[str]) -> Iterator[tuple[str, Path]]:
    def holds_sources(directory: str, name: str) -> bool:
        path = os.path.relpath(os.path.join(directory, name), root)  # noqa: PTH118 - many files
        if any(f"{name}/".startswith(f"{path}/") for name in named):
            return True
        if name.startswith(".") or name in _SKIPPED:
            return False
        return name not in _RESULTS or directory != str(root)

    for directory, names, files in os.walk(root):
        names[:] = sorted(name for name in names if holds_sources(directory, name))
        for name in sorted(files):
            path = Path(directory, name)
            # A pipe would be read for ever, a link to nothing not at all.
            if not name.startswith(".") and not name.endswith(".pyc") and path.is_file():
                yield path.relative_to(root).as_posix(), path


def _git_state(root: Path, runner: Runner) -> GitState | None:
    def git(*argv: str) -> str | None:
        try:
            done = runner(Command(argv=("git", "-C", str(root), *argv)))
        except FileNotFoundError:
            return None
        return done.stdout.strip() if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    if not commit:
        return None
    return GitState(commit=commit, dirty=bool(git("status", "--porcelain", "-uno", "--", ".")))


def tagged_version(project: Project) -> str | None:
    """Version that a git tag ``vX.Y.Z`` gives to the commit that is checked out, if one does."""
    if project.git is None or project.git.dirty:
        return None
    tags = run(Command(argv=("git", "-C", str(project.root), "tag", "--points-at", "HEAD"))).stdout
    pattern = rf"v({project.manifest.general.version}\.\d+\.\d+)"
    found = [match[1] for tag in tags.split() if (match := re.fullmatch(pattern, tag))]
    return max(found, key=lambda version: tuple(map(int, version.split("."))), default=None)


def card(project: Project) -> str | None:
    """Text of the project's CARD.md, unless it is a template that another tool must fill."""
    path = project.root / "CARD.md"
    text = path.read_text() if path.is_file() else None
    return None if text is None or "{%" in text else text


def benchmarks(project: Project) -> dict[str, Path]:
    """The scripts of a project that measure its published kernel, by file name."""
    found = (re.fullmatch(r"benchmarks/(benchmark[^/]*\.py)", path) for path in project.files)
    return {match[1]: project.files[match[0]] for match in found if match}

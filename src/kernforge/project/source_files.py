# SPDX-License-Identifier: Apache-2.0
"""Read a project's files as a plan sees them."""

from __future__ import annotations

import posixpath
from importlib import resources
from typing import TYPE_CHECKING

from kernforge.manifest.document import Torch
from kernforge.project import units
from kernforge.project.units import Sources
from kernforge.source import includes
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from kernforge.project.api import Project

_TEXT_SUFFIXES = (
    *units.CXX_SUFFIXES,
    *units.CUDA_SUFFIXES,
    *(".h", ".hh", ".hpp", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", ".def", ".in"),
)


def read(project: Project) -> Sources:
    """Read what a compiler could read of a project, and hash what goes into a build."""
    package = units.package_dir(project.manifest)
    texts = {
        path: real.read_text(errors="replace")
        for path, real in project.files.items()
        if path.endswith(_TEXT_SUFFIXES)
    }
    _read_included(texts, project.files)
    found = {*texts, *(path for path in project.files if path.startswith(package))}
    bundled = {}
    if isinstance(project.manifest.framework, Torch):
        header = resources.files("kernforge").joinpath("include/registration.h")
        bundled = {"registration.h": header.read_text()}
    return Sources(
        digests={path: files.sha256_file(project.files[path]) for path in sorted(found)},
        texts=texts,
        bundled=bundled,
    )


def _read_included(texts: dict[str, str], there: Mapping[str, Path]) -> None:
    """Add the files that some text includes though their extension says nothing."""
    todo = list(texts.values())
    while todo:
        named = set().union(*map(includes.base_names, todo))
        todo = []
        for path, real in there.items():
            if path not in texts and posixpath.basename(path) in named:
                texts[path] = real.read_text(errors="replace")
                todo.append(texts[path])

# SPDX-License-Identifier: Apache-2.0
"""Remove what an export wrote, or what kernel-builder's ``create-pyproject`` wrote.

The files of ``create-pyproject`` have nothing that tells them from an author's, so that they are
removed only when the user insists. Their names are those of ``kernel-builder/src/pyproject`` in
github.com/huggingface/kernels, whose ``clean-pyproject`` removes them by name.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from kernforge.export.api import is_foreign
from kernforge.manifest import document, fields
from kernforge.project.api import MANIFEST, read_document
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.project.api import Project

_CREATE_PYPROJECT = (
    *("CMakeLists.txt", "pyproject.toml", "setup.py", "torch-ext/registration.h"),
    *("cmake/_ops.py.in", "cmake/add_build_metadata.py", "cmake/build-variants.cmake"),
    *("cmake/compile-metal.cmake", "cmake/cuda/detect-cuda-capability.py"),
    *("cmake/get_gpu_lang.cmake", "cmake/get_gpu_lang.py", "cmake/hipify.py", "cmake/kernel.cmake"),
    *("cmake/metallib_to_header.py", "cmake/utils.cmake"),
    *(f"metadata-{backend}.json" for backend in get_args(fields.Backend)),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """What is removed of a directory.

    Attributes:
        files: files to remove, by path in it, sorted.
        kept: files with the name of a generated one that no export wrote, sorted.
    """

    root: Path
    files: tuple[str, ...]
    kept: tuple[str, ...]


def plan(
    project: Project, texts: Mapping[str, str | None], root: Path, *, others: bool, force: bool
) -> Removal:
    """What to remove: files of an export, and with ``force`` also others of these names.

    ``build.toml`` stays, and so does a file that it names as a source.

    Args:
        texts: text of each file that an export would write, by its path; None where it is not known.
        root: the directory to which it was exported.
        others: whether the files of ``create-pyproject`` count.
        force: whether files of these names that no export wrote are removed too.
    """
    real = root.resolve()
    named = {*_named(root), MANIFEST}
    paths = {*texts}
    if others:
        package = f"torch-ext/{project.manifest.general.python_name}"
        paths |= {*_CREATE_PYPROJECT, f"{package}/_ops.py"}
    present = sorted(
        path
        for path in paths - named
        if (root / path).is_file() and (root / path).parent.resolve().is_relative_to(real)
    )
    foreign = {path for path in present if is_foreign(root / path, texts.get(path))}
    return Removal(
        root=root,
        files=tuple(path for path in present if force or path not in foreign),
        kept=() if force else tuple(path for path in present if path in foreign),
    )


def remove(removal: Removal) -> None:
    """Remove the files, and the directories that are empty without them."""
    for path in removal.files:
        with files.disk_errors(f"removing {removal.root / path}"):
            files.remove_tree(removal.root / path)
    parents = {parent for path in removal.files for parent in Path(path).parents}
    for parent in sorted(parents - {Path()}, key=lambda path: len(path.parts), reverse=True):
        directory = removal.root / parent
        if directory.is_dir() and not any(directory.iterdir()):
            files.remove_tree(directory)


def _named(root: Path) -> set[str]:
    """The sources that a directory's ``build.toml`` names."""
    data = read_document(root, MANIFEST)
    if data is None:
        return set()
    manifest = document.parse(data.decode(), source=str(root / MANIFEST))
    return {posixpath.normpath(path) for table in manifest.source_tables for path in table.src}

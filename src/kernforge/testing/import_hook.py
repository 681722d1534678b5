# SPDX-License-Identifier: Apache-2.0
"""Imports of tests: the tested build under the name of the project, and the project's files.

Tests of kernel-builder's projects use ``import relu``. A finder handles this name and its
submodules, with the modules of the build for this machine, loaded and verified by
``get_local_kernel``.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from kernforge.artifact import directories
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import UsageError


def install(directory: Path) -> None:
    """Make the build in a directory importable under its name."""
    documents = documents_in(directory)
    # A single variant is taken for every backend of the installed torch.
    backend = documents[0].backend if len(documents) == 1 else None
    sys.meta_path.insert(0, _TestedBuild(documents[0].python_name, directory, backend))


def documents_in(directory: Path) -> list[Metadata]:
    """The metadata of each variant in a directory, or of the variant that it is."""
    paths = [path / FILE for path in directories.variants(directory)]
    return [Metadata.from_json(path.read_bytes(), source=str(path)) for path in paths]


class _TestedBuild(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds and loads the modules of a build under its name."""

    def __init__(self, name: str, directory: Path, backend: str | None) -> None:
        self._name, self._directory, self._backend = name, directory, backend
        self._specs: dict[str, ModuleSpec | None] = {}

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        ours = fullname.partition(".")[0] == self._name
        return importlib.util.spec_from_loader(fullname, self) if ours else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The loaded kernel's module, which is imported under the build's own name already."""
        from kernforge.loader.api import get_local_kernel  # noqa: PLC0415 - when a test imports it

        module = get_local_kernel(self._directory, backend=self._backend)
        if rest := spec.name.removeprefix(self._name):
            module = importlib.import_module(f"{module.__name__}{rest}")
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which relative imports use; the module has run already."""
        if module.__spec__ is not None:
            module.__spec__ = self._specs[module.__spec__.name]


def load_beside(test: str, name: str) -> ModuleType:
    """Import a file at the top of a project, such as ``reference.py``.

    The module's name begins with the project's, since a process may test several projects.

    Args:
        test: ``__file__`` of a file in ``tests/``.
        name: name of the file, without ``.py``.

    Raises:
        UsageError: there is no such file.
    """
    project = Path(test).resolve().parents[1]
    path = project / f"{name}.py"
    spec = importlib.util.spec_from_file_location(f"{project.name}_{name}".replace("-", "_"), path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(
            f"there is no {path}", hint="load_beside(__file__, NAME) is for a file of tests/"
        )
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

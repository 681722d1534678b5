# SPDX-License-Identifier: Apache-2.0
"""What tests import: the tested build under the name of the project, and the files beside them.

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
from typing import Any

from kernforge.artifact import directories
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import UsageError


def install(directory: Path) -> str:
    """Make the build in a directory importable under its name; returns the name.

    Raises:
        UsageError: the directory has no variant.
    """
    paths = [path / FILE for path in directories.variants(directory)]
    documents = [Metadata.from_json(path.read_bytes(), source=str(path)) for path in paths]
    # A single variant is taken for every backend of the installed torch.
    backend = documents[0].backend if len(documents) == 1 else None
    name = documents[0].python_name
    sys.meta_path.insert(0, _TestedBuildFinder(name, directory, backend))
    return name


class _TestedBuildFinder(importlib.abc.MetaPathFinder):
    def __init__(self, name: str, directory: Path, backend: str | None) -> None:
        self._name, self._directory, self._backend = name, directory, backend

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        root, _, rest = fullname.partition(".")
        if root != self._name:
            return None
        return importlib.util.spec_from_loader(
            fullname, _Loader(self._directory, self._backend, rest)
        )


class _Loader(importlib.abc.Loader):
    def __init__(self, directory: Path, backend: str | None, rest: str) -> None:
        self._directory, self._backend, self._rest = directory, backend, rest
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> Any:
        """The loaded kernel's module, which is imported under the build's own name already."""
        del spec
        from kernforge.loader.api import get_local_kernel  # noqa: PLC0415 - when a test imports it

        kernel = get_local_kernel(self._directory, backend=self._backend)
        module = (
            importlib.import_module(f"{kernel.__name__}.{self._rest}") if self._rest else kernel
        )
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Restore the module's own spec, which relative imports use; the module has run already."""
        module.__spec__ = self._spec


def load_beside(test: str, name: str) -> ModuleType:
    """Import a file at the top of a project, such as ``reference.py``.

    The module's name has the project's: a process may test several projects, each with a
    ``reference.py``.

    Args:
        test: ``__file__`` of a file in ``tests/``.
        name: of the file, without ``.py``.

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

# SPDX-License-Identifier: Apache-2.0
"""``import <name>`` for tests: the tested build under the project's own name.

Tests of kernel-builder's projects say ``import relu``. A finder answers for that one name and
what lies below it, with the modules of the build that fits this machine, loaded and verified as
``get_local_kernel`` does.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.util
import sys
from typing import TYPE_CHECKING, Any

from kernforge.artifact import directories
from kernforge.artifact.metadata import FILE, Metadata

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType


def install(directory: Path) -> str:
    """Let the name of the build in a directory be imported; returns that name.

    Raises:
        UsageError: no variant lies there.
    """
    found = [path / FILE for path in directories.variants(directory)]
    documents = [Metadata.from_json(path.read_bytes(), source=str(path)) for path in found]
    # A single variant is the one that is meant, whatever torch is built for.
    backend = documents[0].backend if len(documents) == 1 else None
    name = documents[0].python_name
    sys.meta_path.insert(0, _Finder(name, directory, backend))
    return name


class _Finder(importlib.abc.MetaPathFinder):
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
        self._own: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> Any:
        """The loaded kernel's module, which is there under the build's own name already."""
        del spec
        from kernforge.loader.api import get_local_kernel  # noqa: PLC0415 - when a test imports it

        kernel = get_local_kernel(self._directory, backend=self._backend)
        found = importlib.import_module(f"{kernel.__name__}.{self._rest}") if self._rest else kernel
        self._own = found.__spec__
        return found

    def exec_module(self, module: ModuleType) -> None:
        """Give it its own spec back: it was run when it was loaded, and imports relative to it."""
        module.__spec__ = self._own

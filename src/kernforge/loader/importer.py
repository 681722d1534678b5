# SPDX-License-Identifier: Apache-2.0
"""Import a variant's package under its id, from its verified source alone.

A finder of our own imports everything below the id. It compiles the sources each time, so bytecode
in their directories (which no digest covers) never runs and is never written, nor by late imports
of a kernel. It compiles only bytes that fit the digest, so a module that changes after its
verification never runs. Shared objects are loaded from their verified place: a world-writable
directory is refused before.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.machinery import (
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
)
from pathlib import Path
from types import CodeType, ModuleType

from kernforge.artifact.integrity import hash_bytes
from kernforge.artifact.metadata import Digest, Metadata
from kernforge.errors import DependencyError, IntegrityError, MissingFileError, UsageError
from kernforge.system.forks import free_in_child


@dataclass(frozen=True, slots=True)
class RepoInfo:
    """The origin of a kernel: its repo id, and its commit there."""

    repo_id: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedKernel:
    """A kernel in this process.

    Attributes:
        metadata: the document of its build.
        module: its package.
        path: the directory of its variant.
        repo_info: its registry's name for it; None for a local kernel.
    """

    metadata: Metadata
    module: ModuleType
    path: Path
    repo_info: RepoInfo | None = None


# Ids of other builders need not begin with an underscore, nor be identifiers.
_ID = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")

lock = free_in_child(threading.RLock())
"""Held while a kernel and its dependencies are imported; one thread imports at a time."""

_by_path: dict[Path, LoadedKernel] = {}
_by_id: dict[str, LoadedKernel] = {}
_dependencies: ContextVar[Mapping[str, ModuleType] | None] = ContextVar(
    "kernforge_dependencies", default=None
)


def loaded(path: Path) -> ModuleType | None:
    """The package of a loaded variant; None if it is not loaded."""
    kernel = _by_path.get(path)
    return None if kernel is None else kernel.module


def get_loaded_kernels() -> list[LoadedKernel]:
    """Every kernel that this process loaded, each once, in the order of loading."""
    return list(_by_id.values())


def get_kernel_dep(repo_id: str) -> ModuleType:
    """A dependency of the kernel that is being imported; only for use during its import.

    Raises:
        DependencyError: no kernel is being imported, or it does not declare the dependency.
    """
    known = _dependencies.get()
    if known is None:
        raise DependencyError(
            f"get_kernel_dep({repo_id!r}) only works during kernel loading, when a kernel is "
            "imported",
            hint="call it at the top level of a kernel's module, and keep what it returns",
        )
    if repo_id not in known:
        raise DependencyError(
            f"{repo_id!r} was not found in kernel dependencies of the kernel that is imported",
            hint="add it to kernel-depends in build.toml and build again",
        )
    return known[repo_id]


def import_kernel(
    path: Path,
    metadata: Metadata,
    *,
    dependencies: Mapping[str, ModuleType],
    repo_info: RepoInfo | None = None,
) -> ModuleType:
    """Import a variant whose files were verified; a variant is imported once.

    Callers hold ``lock``.

    Args:
        dependencies: the kernels that ``get_kernel_dep`` returns to it, by repo id.
        repo_info: its origin; None for a local kernel.
    """
    kernel = _by_path.get(path) or _same_build(path, metadata)
    if kernel is None:
        module = _execute(path, metadata, dependencies)
        kernel = LoadedKernel(metadata=metadata, module=module, path=path, repo_info=repo_info)
        _by_id[metadata.id] = kernel
    _by_path[path] = kernel
    return kernel.module


def _same_build(path: Path, metadata: Metadata) -> LoadedKernel | None:
    """The loaded kernel of the same id and bytes from another path.

    The id names the module and the torch operators, so a process can load one build of an id.
    """
    kernel = _by_id.get(metadata.id)
    digest = None if kernel is None else kernel.metadata.digest
    if digest is not None and digest == metadata.digest:
        return kernel
    if kernel is not None or metadata.id in sys.modules:
        where = getattr(sys.modules.get(metadata.id), "__file__", "elsewhere")
        raise UsageError(
            f"{path} cannot be loaded: another build called {metadata.id} is loaded from {where}",
            hint="start a new process; builds from committed sources have ids of their own",
        )
    return None


def _execute(path: Path, metadata: Metadata, dependencies: Mapping[str, ModuleType]) -> ModuleType:
    init = _package_file(path, metadata)
    spec = importlib.util.spec_from_file_location(
        metadata.id,
        init,
        loader=_SourceLoader(metadata.id, str(init)),
        submodule_search_locations=[str(init.parent)],
    )
    if spec is None or spec.loader is None:
        raise IntegrityError(f"{init} cannot be imported", hint="build the kernel again")
    module = importlib.util.module_from_spec(spec)
    if _FINDER not in sys.meta_path:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.roots.add(metadata.id)
    if metadata.digest is not None:
        _FINDER.digests[metadata.id] = (path, metadata.digest)
    sys.modules[metadata.id] = module
    try:
        with dependencies_of(dependencies):
            spec.loader.exec_module(module)
    except BaseException as error:
        _forget(metadata.id)
        error.add_note(f"while importing kernel {metadata.name!r} from {path}")
        raise
    return module


def _package_file(path: Path, metadata: Metadata) -> Path:
    if not _ID.fullmatch(metadata.id) or _hides_a_module(metadata.id):
        raise IntegrityError(
            f"{path}: the id {metadata.id!r} cannot name a module, or hides another one",
            hint="build the kernel again",
        )
    # Old builds hold the package in a directory of its own.
    for candidate in (path / "__init__.py", path / metadata.python_name / "__init__.py"):
        if candidate.is_file():
            return candidate
    raise MissingFileError(f"{path} holds no __init__.py", hint="build the kernel again")


def _hides_a_module(name: str) -> bool:
    """Whether the name is that of another module; an id that begins with _ never is."""
    return not name.startswith("_") and importlib.util.find_spec(name) is not None


def _forget(root: str) -> None:
    """Remove the modules of an import that failed, so that it can be tried again."""
    _FINDER.roots.discard(root)
    _FINDER.digests.pop(root, None)
    for name in [n for n in sys.modules if n == root or n.startswith(f"{root}.")]:
        del sys.modules[name]


@contextmanager
def dependencies_of(deps: Mapping[str, ModuleType]) -> Iterator[None]:
    """Give kernels to ``get_kernel_dep``, by repo id, until the block ends."""
    token = _dependencies.set(deps)
    try:
        with _available_to_clients(deps) if deps else nullcontext():
            yield
    finally:
        _dependencies.reset(token)


@contextmanager
def _available_to_clients(dependencies: Mapping[str, ModuleType]) -> Iterator[None]:
    """Serve ``from kernels import get_kernel_dep``, which published kernels use.

    If the hub's client is installed, it gets the dependencies; else ``kernels`` is kernforge during
    the import.
    """
    client = sys.modules.get("kernels")
    if getattr(client, "__kernforge__", False):  # it asks this module
        yield
        return
    if client is not None or importlib.util.find_spec("kernels") is not None:
        with importlib.import_module("kernels.deps").use_kernel_deps(dict(dependencies)):
            yield
        return
    sys.modules["kernels"] = sys.modules["kernforge"]
    try:
        yield
    finally:
        del sys.modules["kernels"]


class _SourceLoader(SourceFileLoader):
    """Compiles the source, ignores cached bytecode and writes none."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        data = self.get_data(path)
        _FINDER.verify(fullname, path, data)
        return self.source_to_code(data, path)


class _KernelFinder:
    """Finds the modules in packages of kernels."""

    def __init__(self) -> None:
        self.roots: set[str] = set()
        self.digests: dict[str, tuple[Path, Digest]] = {}

    def verify(self, fullname: str, file: str, data: bytes) -> None:
        """Refuse a module whose source differs from the digest of its kernel."""
        known = self.digests.get(fullname.partition(".")[0])
        if known is None:
            return
        directory, digest = known
        name = os.path.relpath(file, directory).replace(os.sep, "/")
        if name.startswith("../"):  # another client loaded a kernel of this id
            return
        if digest.files.get(name) != hash_bytes(data, digest.algorithm):
            raise IntegrityError(
                f"{file} changed after it was verified",
                hint="another program writes there: download the kernel again; no changed code ran",
            )

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        root, dot, _ = fullname.partition(".")
        if not dot or root not in self.roots:
            return None
        for directory in path or ():
            finder = FileFinder(
                directory,
                (ExtensionFileLoader, EXTENSION_SUFFIXES),
                (_SourceLoader, SOURCE_SUFFIXES),
            )
            if spec := finder.find_spec(fullname, target):
                return spec
        # Python's own finder must not try: it would run bytecode.
        raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)


_FINDER = _KernelFinder()


def _forget_unfinished() -> None:
    """In a forked process: what another thread was importing is imported anew."""
    for root in _FINDER.roots - set(_by_id):
        _forget(root)


os.register_at_fork(after_in_child=_forget_unfinished)

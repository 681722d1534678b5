# SPDX-License-Identifier: Apache-2.0
"""Find the variant of a kernel that fits this process, verify it, and import it.

The order is fixed: find the kernel and all kernels that it depends on; hold their documents
against this machine; verify every file of all of them; only then import, dependencies first.

A kernel from a registry must carry a digest. A local directory need not, since the user names it,
but if it carries one it must agree. ``LOCAL_KERNELS``, as ``owner/name=path[:owner/name=path]``,
puts a local directory in the place of a registry's kernel.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import MissingPackageError, NotPublishedError, NoVariantError, RequestError
from kernforge.loader import importer
from kernforge.loader.fitness import check_device, check_promises, verify
from kernforge.loader.host import probe
from kernforge.loader.resolve import Decision, resolve
from kernforge.loader.search import Node, Search, find, find_commit, find_local, local_override
from kernforge.registry.api import Registry, open_default, open_registry

if TYPE_CHECKING:
    from types import ModuleType

    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.loader.search import Builder

AnyRegistry: TypeAlias = str | os.PathLike[str] | Registry | None
"""A registry, its directory or URL; None is the default one."""

# What get_kernel was asked and found: registry, repo id, commit, backend, check_arch.
_found: dict[tuple[str, str, str, str | None, bool], ModuleType] = {}


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see the docstring
    build: bool = False,
) -> ModuleType:
    """Load a kernel from a registry; a kernel that is loaded already costs microseconds.

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``; the newest that it
            allows is taken.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL as ``open_registry`` takes it, or a ``Registry``; the default
            is ``KERNFORGE_REGISTRY``, else the user's own directory and, for kernels that it does
            not hold, the hub.
        backend: ``cpu``, or the one that torch is built for, which is the default.
        trust_remote_code: the caller's word that a kernel may be loaded where the trust policy
            asks for it: True, or a list of repo ids. See the page on trust.
        check_arch: whether to refuse a build without device code for the current GPU, or for a
            newer driver.
        user_agent: for callers of the hub's client; nobody is told.
        build: where no variant fits but the source is published with its lock, build the one for
            this machine (once; it is kept). It needs ``kernforge[build]`` and a C++ compiler.

    Returns:
        The kernel's package.

    Raises:
        RequestError: neither or both of version and revision, or another impossible request.
        RegistryError: there is no such kernel or version.
        NoVariantError: no variant fits; the message says why for each, the hint what to do.
        MachineError: the one that fits cannot run on this device or driver.
        MissingPackageError: a Python package is missing that the kernel needs.
        TrustError: the trust policy refuses it, or a kernel that it depends on.
        IntegrityError: a file is not what was built. Nothing of the kernel was run.
    """
    _check_request(version, revision)
    store = _opened(registry)
    if local_override(repo_id) is not None:
        search = Search(store, backend, trust_remote_code)
        return _load(find(search, repo_id, version, revision), check_arch=check_arch)
    question = (
        store.url,
        repo_id,
        find_commit(store, repo_id, version, revision),
        backend,
        check_arch,
    )
    module = _found.get(question)
    if module is None:
        builder = _builder() if build else None
        search = Search(store, backend, trust_remote_code, builder=builder)
        root = find(search, repo_id, None, question[2])
        module = _found[question] = _load(root, check_arch=check_arch)
    return module


def get_local_kernel(
    repo_path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    registry: AnyRegistry = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see get_kernel
) -> ModuleType:
    """Load a kernel from a directory.

    Args:
        repo_path: a directory of variants, one with ``build/`` in it, or a variant.
        backend: as for ``get_kernel``.
        registry: where the kernels are that it depends on.
        trust_remote_code: as for ``get_kernel``.
        check_arch: as for ``get_kernel``.
        user_agent: as for ``get_kernel``.

    Returns:
        The kernel's package. A directory is imported once; later changes are not seen.

    Raises:
        NoVariantError: no variant there fits; the message says why for each.
        TrustError: the trust policy refuses it.
        IntegrityError: its metadata has a digest and a file differs.
    """
    search = Search(_opened(registry), backend, trust_remote_code)
    return _load(find_local(search, Path(repo_path)), check_arch=check_arch)


def has_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> bool:
    """Whether ``get_kernel`` would find a build for this process; none of its files are verified.

    It is false, too, when the kernel, the version, or a kernel that it depends on is not
    published. The arguments and the other errors are those of ``get_kernel``.
    """
    _check_request(version, revision)
    try:
        root = find(
            Search(_opened(registry), backend, trust_remote_code), repo_id, version, revision
        )
        if check_arch:
            for node in root.walk():
                check_device(node)
    except (NoVariantError, NotPublishedError):
        return False
    return True


def get_kernel_variants(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
) -> list[Decision]:
    """Every variant of a kernel with what speaks for or against it here, the best first.

    The arguments and the errors are those of ``get_kernel``.
    """
    _check_request(version, revision)
    store = _opened(registry)
    commit = find_commit(store, repo_id, version, revision)
    return list(resolve(store.variants(repo_id, commit), probe(backend)).decisions)


def install_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    local_files_only: bool = False,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see get_kernel
) -> Path:
    """Bring a kernel and all that it depends on to this machine and verify them; import nothing.

    Args:
        repo_id: as for ``get_kernel``, like all arguments that are not named here.
        version: see there.
        revision: see there.
        registry: see there.
        backend: see there.
        local_files_only: ask nobody else; what is not here is an error.
        trust_remote_code: see there.
        user_agent: see there.

    Returns:
        The directory of the variant for this process.
    """
    _check_request(version, revision)
    store = _opened(registry)
    search = Search(store.offline() if local_files_only else store, backend, trust_remote_code)
    root = find(search, repo_id, version, revision)
    for node in root.walk():
        verify(node)
    return root.path


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | KernelLocks | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,  # noqa: ARG001 - see get_kernel
) -> ModuleType:
    """Load a kernel at the commit that a lock says, and all that it depends on likewise.

    Args:
        repo_id: ``owner/name``.
        lockfile: a ``kernels.lock``, or what was read of one; None takes the one that the calling
            package brought with it, in its distribution's metadata or beside its modules.
        registry: as for ``get_kernel``.
        backend: as for ``get_kernel``.
        trust_remote_code: as for ``get_kernel``.
        check_arch: as for ``get_kernel``.
        user_agent: as for ``get_kernel``.

    Raises:
        RequestError: there is no lock, or it does not have the kernel or one it depends on.
        RegistryError: the registry lacks what is locked.
    """
    locks = read_locks(lockfile)
    search = Search(_opened(registry), backend, trust_remote_code, locks=locks)
    return _load_locked(search, locks, repo_id, check_arch=check_arch)


def load_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
) -> ModuleType:
    """``get_locked_kernel`` for what was downloaded before: nothing is asked of any network."""
    locks = read_locks(lockfile)
    search = Search(_opened(registry).offline(), backend, trust_remote_code, locks=locks)
    return _load_locked(search, locks, repo_id, check_arch=check_arch)


def read_locks(lockfile: str | os.PathLike[str] | KernelLocks | None) -> KernelLocks:
    """The lock in a file; None is the one that the calling package brought with it.

    Raises:
        RequestError: there is none, or it is no lock.
    """
    from kernforge.loader import caller_lock, kernels_lock  # noqa: PLC0415 - slow, only for locked kernels

    if isinstance(lockfile, kernels_lock.KernelLocks):
        return lockfile
    return caller_lock.of_caller() if lockfile is None else caller_lock.read(Path(lockfile))


def _load_locked(
    search: Search, locks: KernelLocks, repo_id: str, *, check_arch: bool
) -> ModuleType:
    depend = locks.of(repo_id).depend
    return _load(find(search, repo_id, depend.version, depend.revision), check_arch=check_arch)


def _check_request(version: int | str | None, revision: str | None) -> None:
    if (version is None) == (revision is None):
        said = "neither a version nor a revision" if version is None else "version and revision"
        raise RequestError(
            f"{said} of the kernel was given",
            hint="pass version=<major> for a stable interface, or revision=<branch, tag or commit>",
        )


def _opened(registry: AnyRegistry) -> Registry:
    if registry is None:
        return open_default()
    if isinstance(registry, str | os.PathLike):
        return open_registry(os.fspath(registry))
    return registry


def _builder() -> Builder:
    """What builds from published source; only who asked for it meets the builder half."""
    import importlib  # noqa: PLC0415 - see above

    try:
        builder: Builder = importlib.import_module("kernforge.build.from_source").build_here
    except ImportError as error:
        raise MissingPackageError(
            f"building a kernel here needs more packages: {error}",
            hint="pip install 'kernforge[build]'",
        ) from error
    return builder


def _load(root: Node, *, check_arch: bool) -> ModuleType:
    """Check, verify and import a tree of kernels; none is imported before all are verified."""
    with importer.lock:
        _check([n for n in root.walk() if importer.loaded(n.path) is None], check_arch=check_arch)
        return _import(root)


def _check(nodes: list[Node], *, check_arch: bool) -> None:
    for node in nodes:
        check_promises(node)
        if check_arch:
            check_device(node)
    for node in nodes:
        verify(node)


def _import(node: Node) -> ModuleType:
    modules = {repo_id: _import(depend) for repo_id, depend in node.depends.items()}
    return importer.import_kernel(
        node.path, node.metadata, dependencies=modules, repo_info=node.repo_info
    )

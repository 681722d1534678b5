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

from kernforge._version import __version__
from kernforge.errors import MissingPackageError, NotPublishedError, NoVariantError
from kernforge.loader import audit_log, importer
from kernforge.loader.fitness import check_device, check_needs, verify, verify_to_load
from kernforge.loader.host import probe, probe_to_load, told
from kernforge.loader.resolve import Decision, resolve
from kernforge.loader.search import (
    Node,
    Search,
    check_request,
    find_commit,
    find_kernel,
    find_local,
    local_override,
)
from kernforge.registry import hub_endpoint
from kernforge.registry.api import Registry, member_for, open_default, open_registry
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import ModuleType

    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.loader.libraries import Libraries
    from kernforge.loader.search import Builder

AnyRegistry: TypeAlias = str | os.PathLike[str] | Registry | None
"""A registry, its directory or URL; None is the default one."""

# The packages that get_kernel returned, by registry, repo id, commit, backend and check_arch.
_loaded: dict[tuple[str, str, str, str | None, bool], ModuleType] = {}


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,
    build: bool = False,
) -> ModuleType:
    """Load a kernel from a registry; a kernel that is loaded already costs microseconds.

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``: the newest in it.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL or a ``Registry``; by default ``KERNFORGE_REGISTRY``, else the
            user's own directory and, for kernels that it does not hold, the hub.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        check_arch: refuse a build without device code for the current GPU, or for a newer driver.
        user_agent: told to the hub, with what this process is, if ``KERNFORGE_USER_AGENT`` is 1.
        build: where no variant fits but the source is published with its lock, build it once. This
            needs ``kernforge[build]`` and a C++ compiler.

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
    check_request(version, revision)
    environment = Environment.live()  # two variables of a loaded kernel, and no copy of all
    source = _open(registry, environment, user_agent)
    if local_override(environment, repo_id) is not None:
        search = Search(source, backend, Environment.read(), trust_remote_code)
        return _load(
            find_kernel(search, repo_id, version, revision),
            search.environment,
            check_arch=check_arch,
        )
    commit = find_commit(source, repo_id, version, revision)
    request = (source.url, repo_id, commit, backend, check_arch)
    module = _loaded.get(request)
    if module is None:
        builder = _builder() if build else None
        search = Search(source, backend, Environment.read(), trust_remote_code, builder=builder)
        root = find_kernel(search, repo_id, None, commit)
        module = _loaded[request] = _load(root, search.environment, check_arch=check_arch)
    return module


def get_local_kernel(
    repo_path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    registry: AnyRegistry = None,
    trust_remote_code: bool | list[str] = False,
    check_arch: bool = True,
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """Load a kernel from a directory.

    Args:
        repo_path: a directory of variants, one with ``build/`` in it, or a variant.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        registry: where the kernels are that it depends on, as ``get_kernel`` takes it.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        check_arch: refuse a build without device code for the current GPU, or for a newer driver.
        user_agent: told to the hub, with what this process is, if ``KERNFORGE_USER_AGENT`` is 1.

    Returns:
        The kernel's package. A directory is imported once; later changes are not seen.

    Raises:
        NoVariantError: no variant there fits; the message says why for each.
        MachineError: the one that fits cannot run on this device or driver.
        TrustError: the trust policy refuses it.
        IntegrityError: its metadata has a digest and a file differs.
    """
    search = _new_search(registry, backend, trust_remote_code, user_agent=user_agent)
    return _load(find_local(search, Path(repo_path)), search.environment, check_arch=check_arch)


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

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL or a ``Registry``, as ``get_kernel`` takes it.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        check_arch: whether a build counts only if it has device code for the current GPU.

    Returns:
        False, too, when the kernel, the version, or a kernel that it depends on is not published.

    Raises:
        RequestError: neither or both of version and revision, or another impossible request.
        RegistryError: the registry cannot be read.
        TrustError: the trust policy refuses it, or a kernel that it depends on.
        IntegrityError: a document cannot be read, or its signature is of other bytes.
    """
    check_request(version, revision)
    try:
        search = _new_search(registry, backend, trust_remote_code)
        root = find_kernel(search, repo_id, version, revision)
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

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL or a ``Registry``, as ``get_kernel`` takes it.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.

    Raises:
        RequestError: neither or both of version and revision, or another impossible request.
        RegistryError: there is no such kernel or version.
    """
    check_request(version, revision)
    source = _open(registry, Environment.live())
    commit = find_commit(source, repo_id, version, revision)
    return list(resolve(source.variants(repo_id, commit), probe_to_load(backend)).decisions)


def install_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    local_files_only: bool = False,
    trust_remote_code: bool | list[str] = False,
    user_agent: str | dict[str, str] | None = None,
) -> Path:
    """Bring a kernel and all that it depends on to this machine and verify them; import nothing.

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``, or a range such as ``"~=1.2"``: the newest in it.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL or a ``Registry``, as ``get_kernel`` takes it.
        backend: ``cpu``, or the one that torch is built for, which is the default.
        local_files_only: use no network; what is not on this machine is an error.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        user_agent: told to the hub, with what this process is, if ``KERNFORGE_USER_AGENT`` is 1.

    Returns:
        The directory of the variant for this process.

    Raises:
        RequestError: neither or both of version and revision, or another impossible request.
        RegistryError: there is no such kernel or version.
        NoVariantError: no variant fits; the message says why for each, the hint what to do.
        TrustError: the trust policy refuses it, or a kernel that it depends on.
        IntegrityError: a file is not what was built.
    """
    check_request(version, revision)
    # What is installed here, as into an image, may be loaded where there is a GPU.
    backend = backend or probe(None).backend.name
    search = _new_search(
        registry, backend, trust_remote_code, offline=local_files_only, user_agent=user_agent
    )
    root = find_kernel(search, repo_id, version, revision)
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
    user_agent: str | dict[str, str] | None = None,
) -> ModuleType:
    """Load a kernel at the commit that a lock says, and all that it depends on likewise.

    Args:
        repo_id: ``owner/name``.
        lockfile: a ``kernels.lock``, or what was read from one; None takes the calling package's.
        registry: a directory, a URL or a ``Registry``, as ``get_kernel`` takes it.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        check_arch: refuse a build without device code for the current GPU, or for a newer driver.
        user_agent: told to the hub, with what this process is, if ``KERNFORGE_USER_AGENT`` is 1.

    Returns:
        The kernel's package.

    Raises:
        RequestError: there is no lock, or it does not have the kernel or one it depends on.
        RegistryError: the registry lacks what is locked.
        NoVariantError: no variant fits; the message says why for each, the hint what to do.
        MachineError: the one that fits cannot run on this device or driver.
        MissingPackageError: a Python package is missing that the kernel needs.
        TrustError: the trust policy refuses it, or a kernel that it depends on.
        IntegrityError: a file is not what was built or locked. Nothing of the kernel was run.
    """
    locks = read_locks(lockfile)
    search = _new_search(registry, backend, trust_remote_code, locks=locks, user_agent=user_agent)
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
    """Load a locked kernel that was downloaded before; no network is used.

    Args:
        repo_id: ``owner/name``.
        lockfile: a ``kernels.lock``; None takes the calling package's.
        registry: a directory, a URL or a ``Registry``, as ``get_kernel`` takes it.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        trust_remote_code: True or repo ids: what to load where the trust policy leaves it to you.
        check_arch: refuse a build without device code for the current GPU, or for a newer driver.

    Returns:
        The kernel's package.

    Raises:
        KernforgeError: the errors of ``get_locked_kernel``; a kernel that was not downloaded is a
            ``NotPublishedError``.
    """
    locks = read_locks(lockfile)
    search = _new_search(registry, backend, trust_remote_code, locks=locks, offline=True)
    return _load_locked(search, locks, repo_id, check_arch=check_arch)


def read_locks(lockfile: str | os.PathLike[str] | KernelLocks | None) -> KernelLocks:
    """The lock in a file; None is the one that the calling package brought with it.

    Raises:
        RequestError: there is none, or the file is not a lock.
    """
    from kernforge.loader import caller_lock, kernels_lock  # noqa: PLC0415 - slow, only for locked kernels

    if isinstance(lockfile, kernels_lock.KernelLocks):
        return lockfile
    return caller_lock.of_caller() if lockfile is None else caller_lock.read(Path(lockfile))


def _load_locked(
    search: Search, locks: KernelLocks, repo_id: str, *, check_arch: bool
) -> ModuleType:
    depend = locks.of(repo_id).depend
    root = find_kernel(search, repo_id, depend.version, depend.revision)
    return _load(root, search.environment, check_arch=check_arch)


def forget(path: Path) -> None:
    """Forget the kernel of a variant's directory, so that it is imported again when it is asked for.

    Operators that it registered with torch stay there.
    """
    with importer.lock:
        module = importer.loaded(path)
        importer.forget(path)
        for request in [request for request, known in _loaded.items() if known is module]:
            del _loaded[request]


def find(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
) -> tuple[Registry, str]:
    """The registry of a kernel, and the commit of a version or revision there.

    Raises:
        RequestError: neither or both of version and revision, or another impossible request.
        RegistryError: there is no such kernel or version.
    """
    check_request(version, revision)
    source = _open(registry, Environment.live())
    commit = find_commit(source, repo_id, version, revision)
    return member_for(source, repo_id), commit


def tell(environment: Environment, user_agent: str | dict[str, str] | None = None) -> None:
    """Keep what requests to a hub may say of this process; nothing unless the user allows it."""
    if hub_endpoint.allows_telling(environment):
        hub_endpoint.TOLD.set(told(user_agent, f"kernforge/{__version__}"))


def _new_search(
    registry: AnyRegistry,
    backend: str | None,
    trust_remote_code: bool | list[str],  # noqa: FBT001 - as its callers take it
    *,
    locks: KernelLocks | None = None,
    offline: bool = False,
    user_agent: str | dict[str, str] | None = None,
) -> Search:
    environment = Environment.read()
    source = _open(registry, environment, user_agent)
    return Search(
        source.offline() if offline else source,
        backend,
        environment,
        trust_remote_code,
        locks=locks,
    )


def _open(
    registry: AnyRegistry,
    environment: Environment,
    user_agent: str | dict[str, str] | None = None,
) -> Registry:
    tell(environment, user_agent)
    if registry is None:
        return open_default(environment)
    if isinstance(registry, str | os.PathLike):
        return open_registry(os.fspath(registry), environment)
    return registry


def _builder() -> Builder:
    """Builds kernels from published source; imported only on request, with the builder half."""
    import importlib  # noqa: PLC0415 - see above

    try:
        builder: Builder = importlib.import_module("kernforge.build.from_source").build_here
    except ImportError as error:
        raise MissingPackageError(
            f"building a kernel here needs more packages: {error}",
            hint="pip install 'kernforge[build]'",
        ) from error
    return builder


def _load(root: Node, environment: Environment, *, check_arch: bool) -> ModuleType:
    """Check, verify and import a tree of kernels; none is imported before all are verified."""
    with importer.lock:
        nodes = {n.path: n for n in root.walk() if importer.loaded(n.path) is None}
        for node in nodes.values():
            check_needs(node, environment)
            if check_arch:
                check_device(node)
        libraries: dict[Path, Libraries] = {}
        try:
            for path, node in nodes.items():
                verified = verify_to_load(node)
                if verified:
                    libraries[path] = verified
            module = _import(root, libraries)
        finally:
            for verified in libraries.values():
                verified.close_unused()
        for node in nodes.values():
            audit_log.record(node, environment)
        return module


def _import(node: Node, libraries: Mapping[Path, Libraries]) -> ModuleType:
    modules = {repo_id: _import(depend, libraries) for repo_id, depend in node.depends.items()}
    return importer.import_kernel(
        node.path,
        node.metadata,
        dependencies=modules,
        repo_info=node.repo_info,
        libraries=libraries.get(node.path),
    )

# SPDX-License-Identifier: Apache-2.0
"""Find the variant of a kernel that fits this process, verify it, and import it.

The order is fixed: find the kernel and all kernels that it depends on; hold their documents
against the trust policy and this machine; verify every file of all of them; only then import,
dependencies first.

A kernel from a registry must carry a digest. A local directory need not, since the user names it,
but if it carries one it must agree. ``LOCAL_KERNELS``, as ``owner/name=path[:owner/name=path]``,
puts a local directory in the place of a registry's kernel.
"""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import MissingPackageError, NotPublishedError, NoVariantError
from kernforge.loader import importer
from kernforge.loader.host import probe, probe_to_load
from kernforge.loader.resolve import Decision, resolve
from kernforge.loader.search import (
    Builder,
    Node,
    Search,
    check_device,
    check_needs,
    find_answer,
    find_kernel,
    find_local,
    local_override,
    verify,
)
from kernforge.registry.api import find, open_default, open_registry
from kernforge.registry.directory import Registries
from kernforge.registry.names import Request, request
from kernforge.system.environment import Environment
from kernforge.trust.admission import Allowed

if TYPE_CHECKING:
    from kernforge.loader.lock import KernelLocks  # slow, only for locked kernels

AnyRegistry: TypeAlias = str | os.PathLike[str] | Registries | None
"""A registry, its directory or URL; None is the default one."""

UserAgent: TypeAlias = str | dict[str, str] | None
"""An addition to the header ``User-Agent`` of requests to a hub."""

# The packages that get_kernel returned, by registry, request, commit, backend and check_arch.
_loaded: dict[tuple[str, Request, str, str | None, bool], ModuleType] = {}


def get_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: Allowed = False,
    check_arch: bool = True,
    user_agent: UserAgent = None,
    build: bool = False,
) -> ModuleType:
    """Load a kernel from a registry; a kernel that is loaded already costs microseconds.

    Args:
        repo_id: ``owner/name``.
        version: a major version such as ``1``; ``"1.2"`` for the newest of 1.2; ``"1.2.3"``
            exactly; or a range such as ``"~=1.2"``: the newest in it.
        revision: a branch, tag or commit instead of a version.
        registry: a directory, a URL or a ``Registry``; by default ``KERNFORGE_REGISTRY``, else the
            user's own directory and, for kernels that it does not hold, the hub.
        backend: ``cpu``, or the one that torch is built for. The default is the latter; without a
            GPU, builds for the CPU come first.
        trust_remote_code: allow untrusted publishers: True, or a list of repo ids.
        check_arch: refuse a build without device code for the current GPU, or for a newer driver.
        user_agent: added to the header ``User-Agent`` of requests to a hub.
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
        IntegrityError: a file was modified; no kernel code ran.
    """
    wanted = request(repo_id, version, revision)
    environment = Environment.live()  # two variables of a loaded kernel, and no copy of all
    source = _open(registry, environment, user_agent)
    override = local_override(environment, repo_id)
    answer = None if override else find(source, wanted)
    known = (source.url, wanted, answer.commit if answer else "", backend, check_arch)
    if answer and known in _loaded:
        return _loaded[known]
    builder = _builder() if build else None
    search = Search(source, backend, Environment.read(), trust_remote_code, builder=builder)
    root = find_answer(search, answer) if answer else find_kernel(search, wanted)
    module = _load(search, root, check_arch=check_arch)
    if answer:
        _loaded[known] = module
    return module


def get_local_kernel(
    repo_path: str | os.PathLike[str],
    *,
    backend: str | None = None,
    registry: AnyRegistry = None,
    trust_remote_code: Allowed = False,
    check_arch: bool = True,
    user_agent: UserAgent = None,
) -> ModuleType:
    """Load a kernel from a directory: of variants, with ``build/`` in it, or of one variant.

    A directory is imported once; later changes are not seen. Of the trust policy, the rules for
    directories hold; those for ``owner/name`` do not.

    Args:
        registry: where the kernels are that it depends on. The other arguments and the errors are
            those of ``get_kernel``.
    """
    search = _new_search(registry, backend, trust_remote_code, user_agent=user_agent)
    return _load(search, find_local(search, Path(repo_path)), check_arch=check_arch)


def has_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: Allowed = False,
    check_arch: bool = True,
) -> bool:
    """Whether ``get_kernel`` would find a build for this process; none of its files are verified.

    The arguments and errors are those of ``get_kernel``; it is False, too, when the kernel, the
    version, or a kernel that it depends on is not published.
    """
    wanted = request(repo_id, version, revision)
    try:
        root = find_kernel(_new_search(registry, backend, trust_remote_code), wanted)
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
    """Every variant of a kernel with the reason of its acceptance or refusal, the best first.

    The arguments and errors are those of ``get_kernel``.
    """
    source = _open(registry, Environment.live())
    answer = find(source, request(repo_id, version, revision))
    return list(resolve(answer.variants, probe_to_load(backend)).decisions)


def install_kernel(
    repo_id: str,
    *,
    version: int | str | None = None,
    revision: str | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    local_files_only: bool = False,
    trust_remote_code: Allowed = False,
    user_agent: UserAgent = None,
) -> Path:
    """Download and verify a kernel with its dependencies; import nothing.

    Args:
        backend: ``cpu``, or the one that torch is built for, which is the default.
        local_files_only: use no network; a file that is not on this machine is an error. The
            other arguments and the errors are those of ``get_kernel``.

    Returns:
        The directory of the variant for this process.
    """
    wanted = request(repo_id, version, revision)
    # What is installed here, as into an image, may be loaded where there is a GPU.
    backend = backend or probe(None).backend.name
    search = _new_search(
        registry, backend, trust_remote_code, offline=local_files_only, user_agent=user_agent
    )
    root = find_kernel(search, wanted)
    for node in root.walk():
        verify(node)
    return root.path


def get_locked_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | KernelLocks | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: Allowed = False,
    check_arch: bool = True,
    user_agent: UserAgent = None,
) -> ModuleType:
    """Load a kernel at its locked commit, and its dependencies at theirs.

    Args:
        lockfile: a ``kernels.lock``, or ``read_locks`` of one; None takes the calling package's.
            The other arguments and the errors are those of ``get_kernel``.

    Raises:
        RequestError: there is no lock, or it lacks the kernel or a dependency.
    """
    locks = read_locks(lockfile)
    search = _new_search(registry, backend, trust_remote_code, locks=locks, user_agent=user_agent)
    root = find_kernel(search, locks.of(repo_id).request)
    return _load(search, root, check_arch=check_arch)


def load_kernel(
    repo_id: str,
    *,
    lockfile: str | os.PathLike[str] | None = None,
    registry: AnyRegistry = None,
    backend: str | None = None,
    trust_remote_code: Allowed = False,
    check_arch: bool = True,
) -> ModuleType:
    """Load a locked kernel that was downloaded before; no network is used.

    The arguments and errors are those of ``get_locked_kernel``; a kernel that was not downloaded is
    a ``NotPublishedError``.
    """
    locks = read_locks(lockfile)
    search = _new_search(registry, backend, trust_remote_code, locks=locks, offline=True)
    root = find_kernel(search, locks.of(repo_id).request)
    return _load(search, root, check_arch=check_arch)


def read_locks(lockfile: str | os.PathLike[str] | KernelLocks | None) -> KernelLocks:
    """The lock in a file; None is the one of the calling package.

    Raises:
        RequestError: there is none, or the file is not a lock.
    """
    from kernforge.loader import lock  # noqa: PLC0415 - slow, only for locked kernels

    if isinstance(lockfile, lock.KernelLocks):
        return lockfile
    return lock.of_caller() if lockfile is None else lock.read(Path(lockfile))


def _new_search(
    registry: AnyRegistry,
    backend: str | None,
    trust_remote_code: Allowed,
    *,
    locks: KernelLocks | None = None,
    offline: bool = False,
    user_agent: UserAgent = None,
) -> Search:
    environment = Environment.read()
    source = _open(registry, environment, user_agent)
    source = source.offline() if offline else source
    return Search(source, backend, environment, trust_remote_code, locks=locks)


def _open(
    registry: AnyRegistry, environment: Environment, user_agent: UserAgent = None
) -> Registries:
    if isinstance(user_agent, dict):
        user_agent = "; ".join(f"{key}/{value}" for key, value in user_agent.items())
    if registry is None:
        return open_default(environment, user_agent or "")
    if isinstance(registry, str | os.PathLike):
        return open_registry(os.fspath(registry), environment, user_agent or "")
    return registry


def _builder() -> Builder:
    """The builder of kernels from published source; imported only on request."""
    import importlib  # noqa: PLC0415 - see above

    try:
        builder: Builder = importlib.import_module("kernforge.builder.from_source").build_here
    except ImportError as error:
        raise MissingPackageError(
            f"building a kernel here needs more packages: {error}",
            hint="pip install 'kernforge[build]'",
        ) from error
    return builder


def _load(search: Search, root: Node, *, check_arch: bool) -> ModuleType:
    """Check, verify and import a kernel with its dependencies.

    None is imported before all are verified.
    """
    with importer.lock:
        nodes = {n.path: n for n in root.walk() if importer.loaded(n.path) is None}
        for node in nodes.values():
            check_needs(node, search.environment)
            if check_arch:
                check_device(node)
        for node in nodes.values():
            verify(node)
        module = _import(root)
        for node in nodes.values():
            _log_load(node)
        return module


def _log_load(node: Node) -> None:
    """Log one record for each imported kernel."""
    import logging  # noqa: PLC0415 - slow, and torch has it loaded

    origin = node.repo_info
    logging.getLogger("kernforge.load").info(
        "loaded %s (%s) from %s, commit %s, document %s, signed by %s",
        origin.repo_id if origin else node.metadata.name,
        node.path.name,
        node.admission.registry,
        origin.revision if origin else "-",
        node.admission.document,
        ", ".join(node.admission.signers) or "-",
        extra={"kernforge": node},
    )


def _import(node: Node) -> ModuleType:
    modules = {repo_id: _import(depend) for repo_id, depend in node.depends.items()}
    return importer.import_kernel(
        node.path, node.metadata, dependencies=modules, repo_info=node.repo_info
    )

# SPDX-License-Identifier: Apache-2.0
"""Resolvers: where the client looks for a kernel and those that it depends on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from kernforge.compat import hub
from kernforge.compat.metadata import Metadata
from kernforge.compat.values import KernelDependency, KernelLock, KernelLocks
from kernforge.compat.variants import (
    Variant,
    get_variants,
    get_variants_local,
    parse_variant,
    resolve_variant,
    variants_trace_str,
)
from kernforge.errors import AbsentError, NotPublishedError, NoVariantError, RequestError
from kernforge.loader import audit_log, importer
from kernforge.loader.api import read_locks
from kernforge.loader.fitness import verify_to_load
from kernforge.loader.host import probe
from kernforge.loader.importer import RepoInfo
from kernforge.loader.search import Node, admit_directory, find_commit
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType

    from kernforge.compat.values import KernelPaths
    from kernforge.loader import kernels_lock as ours

BYTECODE = ["*.pyc", "**/__pycache__/**"]
"""What is never downloaded."""


@dataclass(frozen=True)
class LocalKernel:
    """A kernel in a directory; ``origin`` is where it was downloaded from."""

    variant_path: Path
    metadata: Metadata
    origin: RemoteKernel | None = None

    @property
    def variant_str(self) -> str:
        """The variant."""
        return self.variant_path.name

    def install(self, *, api: Any) -> LocalKernel:  # noqa: ARG002 - the client's signature
        """Itself: it is here."""
        return self


@dataclass(frozen=True)
class RemoteKernel:
    """A kernel on a hub."""

    repo_id: str
    revision: str
    metadata: Metadata
    variant: Variant

    @property
    def variant_str(self) -> str:
        """The variant."""
        return self.variant.variant_str

    def install(self, *, api: Any) -> LocalKernel:  # noqa: ARG002 - the client's signature
        """Fetch it."""
        registry = hub.registry()
        commit = find_commit(registry, self.repo_id, None, self.revision)
        path = registry.fetch(self.repo_id, commit, self.variant_str)
        return LocalKernel(path, self.metadata, self)


def _no_variant(where: object, trace: Any) -> NoVariantError:
    return NoVariantError(
        f"Cannot find a build variant for this system in {where}:\n\n{variants_trace_str(trace)}"
    )


def resolve_local_kernel(repo_path: Path, *, backend: str | None) -> LocalKernel:
    """The variant to load from a directory, or the variant that the directory is."""
    trace: Any = []
    for base in (repo_path, repo_path / "build"):
        variant, decided = resolve_variant(get_variants_local(base), backend)
        if variant is not None:
            return _local(base / variant.variant_str)
        trace = decided or trace
    if (repo_path / "metadata.json").exists():
        return _local(repo_path)
    raise _no_variant(repo_path, trace)


def _local(path: Path) -> LocalKernel:
    return LocalKernel(path, Metadata.read_from_file(path / "metadata.json"))


def resolve_hub_kernel(
    repo_id: str, *, api: Any, backend: str | None, revision: str
) -> RemoteKernel:
    """The variant to load of a published kernel."""
    variant, trace = resolve_variant(get_variants(api, repo_id=repo_id, revision=revision), backend)
    if variant is None:
        raise _no_variant(f"{repo_id} (revision: {revision})", trace)
    registry = hub.registry()
    commit = find_commit(registry, repo_id, None, revision)
    document = registry.metadata(repo_id, commit, variant.variant_str)
    return RemoteKernel(repo_id, revision, Metadata.from_bytes(document), variant)


def resolve_hub_cache_kernel(
    api: Any,  # noqa: ARG001 - the client's signature
    repo_id: str,
    *,
    revision: str,
    backend: str | None,
) -> LocalKernel:
    """The variant to load of a kernel that was downloaded.

    Raises:
        AbsentError: it was not; also a FileNotFoundError.
        NoVariantError: none of it fits.
    """
    registry = hub.registry(local_files_only=True)
    where = f"{repo_id} (revision: {revision})"
    try:
        commit = find_commit(registry, repo_id, None, revision)
    except NotPublishedError as error:
        raise AbsentError(
            f"Cannot find a local snapshot for {where}.", hint="download it while online"
        ) from error
    names = registry.variants(repo_id, commit)
    variant, trace = resolve_variant([parse_variant(name) for name in names], backend)
    if variant is None:
        raise _no_variant(where, trace)
    return _local(registry.fetch(repo_id, commit, variant.variant_str))


@runtime_checkable
class Resolver(Protocol):
    """Finds a kernel; None where it has none of that name."""

    def resolve(
        self, *, api: Any, backend: str | None, kernel: KernelDependency
    ) -> LocalKernel | RemoteKernel | None:
        """The kernel."""
        ...


@dataclass
class SequentialResolver:
    """The first of several resolvers that finds a kernel."""

    resolvers: list[Resolver]

    def resolve(
        self, *, api: Any, backend: str | None, kernel: KernelDependency
    ) -> LocalKernel | RemoteKernel | None:
        """The kernel."""
        for resolver in self.resolvers:
            found = resolver.resolve(api=api, backend=backend, kernel=kernel)
            if found is not None:
                return found
        return None


@dataclass
class NoopResolver:
    """Finds nothing."""

    def resolve(self, *, api: Any, backend: str | None, kernel: KernelDependency) -> None:  # noqa: ARG002
        """Nothing."""
        return


@dataclass
class HubResolver:
    """Finds a kernel on the hub."""

    trust_remote_code: bool | list[str]

    def resolve(self, *, api: Any, backend: str | None, kernel: KernelDependency) -> RemoteKernel:
        """The kernel."""
        hub.check_trust_remote_code(kernel.repo_id, False, self.trust_remote_code)
        revision = hub.resolve_kernel_version(kernel, local_files_only=False)
        return resolve_hub_kernel(kernel.repo_id, api=api, backend=backend, revision=revision)


@dataclass
class HubCacheResolver:
    """Finds a kernel in the hub's cache."""

    trust_remote_code: bool | list[str]

    def resolve(self, *, api: Any, backend: str | None, kernel: KernelDependency) -> LocalKernel:
        """The kernel."""
        revision = hub.resolve_kernel_version(kernel, local_files_only=True)
        return resolve_hub_cache_kernel(api, kernel.repo_id, revision=revision, backend=backend)


def locked_revision(kernel_locks: KernelLocks, kernel: KernelDependency) -> str:
    """The commit to which a kernel is locked."""
    lock = kernel_locks.get(kernel)
    if lock is None:
        raise RequestError(
            f"Kernel `{kernel.repo_id}` is not locked.",
            hint="lock it: kernforge lock PROJECT; then install the project again",
        )
    return lock.commit


@dataclass
class LockedHubResolver:
    """Finds a kernel on the hub at the commit of a lock."""

    kernel_locks: KernelLocks
    trust_remote_code: bool | list[str]

    def resolve(self, *, api: Any, backend: str | None, kernel: KernelDependency) -> RemoteKernel:
        """The kernel."""
        hub.check_trust_remote_code(kernel.repo_id, False, self.trust_remote_code)
        revision = locked_revision(self.kernel_locks, kernel)
        return resolve_hub_kernel(kernel.repo_id, api=api, backend=backend, revision=revision)


@dataclass
class LockedHubCacheResolver:
    """Finds a kernel in the hub's cache at the commit of a lock."""

    kernel_locks: KernelLocks
    trust_remote_code: bool | list[str]

    def resolve(self, *, api: Any, backend: str | None, kernel: KernelDependency) -> LocalKernel:
        """The kernel."""
        revision = locked_revision(self.kernel_locks, kernel)
        return resolve_hub_cache_kernel(api, kernel.repo_id, revision=revision, backend=backend)


@dataclass
class KernelPathsResolver:
    """Finds a kernel in a directory that is named for its version."""

    kernel_paths: KernelPaths

    def resolve(
        self,
        *,
        api: Any,  # noqa: ARG002 - the client's signature
        backend: str | None,
        kernel: KernelDependency,
    ) -> LocalKernel | None:
        """The kernel."""
        path = self.kernel_paths.get(kernel)
        return None if path is None else resolve_local_kernel(path, backend=backend)


@dataclass
class RepoPathsResolver:
    """Finds a kernel in a directory that is named for its repo id."""

    local_kernels: dict[str, Path]

    def resolve(
        self,
        *,
        api: Any,  # noqa: ARG002 - the client's signature
        backend: str | None,
        kernel: KernelDependency,
    ) -> LocalKernel | None:
        """The kernel."""
        path = self.local_kernels.get(kernel.repo_id)
        return None if path is None else resolve_local_kernel(path, backend=backend)


@dataclass
class DepTreeNode:
    """A kernel and those that it depends on, by repo id."""

    location: Any
    deps: dict[str, DepTreeNode]

    def install(self, *, api: Any) -> DepTreeNode:
        """Fetch all of them."""
        deps = {repo_id: node.install(api=api) for repo_id, node in self.deps.items()}
        return DepTreeNode(self.location.install(api=api), deps)

    def load(self) -> ModuleType:
        """Import them, and return the kernel's package.

        Raises:
            KernforgeError: what ``get_local_kernel`` raises.
            RuntimeError: one was not installed.
        """
        if isinstance(self.location, RemoteKernel):
            raise RuntimeError(  # noqa: TRY004 - the client's
                "Can only load installed kernels, run `install()` on the kernel dependency tree first."
            )
        deps = {repo_id: node.load() for repo_id, node in self.deps.items()}
        origin = self.location.origin
        info = None if origin is None else RepoInfo(origin.repo_id, origin.revision)
        return import_from_path(self.location.variant_path, deps, info)

    def validate_metadata(self, validator: Any) -> None:
        """Hold each kernel against a rule, a kernel before those that it depends on."""
        validator.validate_metadata(
            metadata=self.location.metadata, variant=self.location.variant_str
        )
        for node in self.deps.values():
            node.validate_metadata(validator)


def resolve_kernel_tree(
    api: Any,
    kernel: KernelDependency,
    backend: str | None,
    resolver: Resolver | None,
    seen: set[KernelDependency] | None = None,
) -> DepTreeNode:
    """Find a kernel and all that it depends on.

    Raises:
        RequestError: one cannot be found, or they depend on each other in a cycle.
    """
    chain = set() if seen is None else seen
    if kernel in chain:
        raise RequestError(f"Cyclic kernel dependency detected: {kernel.repo_id}")
    chain = chain | {kernel}
    location = (
        None if resolver is None else resolver.resolve(api=api, backend=backend, kernel=kernel)
    )
    if location is None:
        depend = kernel.ours
        asked = (
            f"revision: {depend.revision}"
            if depend.version is None
            else f"version: {depend.version}"
        )
        raise RequestError(f"Could not resolve kernel: {kernel.repo_id} ({asked})")
    deps = {
        dep.repo_id: resolve_kernel_tree(
            api=api, backend=backend, kernel=dep, resolver=resolver, seen=chain
        )
        for dep in location.metadata.kernel_depends
    }
    return DepTreeNode(location, deps)


def get_kernel_with_resolver(
    *,
    api: Any,
    backend: str | None,
    kernel: KernelDependency,
    resolver: Resolver | None,
    metadata_validator: Any,
) -> ModuleType:
    """Find a kernel and those that it depends on, hold them against rules, and load them."""
    tree = resolve_kernel_tree(api=api, backend=backend, kernel=kernel, resolver=resolver)
    tree.validate_metadata(metadata_validator)
    return tree.install(api=api).load()


def lock_kernel_tree(
    kernel: KernelDependency,
    *,
    api: Any,
    seen: set[KernelDependency] | None = None,
    kernel_locks: dict[KernelDependency, KernelLock] | None = None,
) -> dict[KernelDependency, KernelLock]:
    """The commits of a kernel and of those that any of its variants depends on.

    Args:
        api: not used: kernforge makes its requests itself.
        seen: the kernels that led here.
        kernel_locks: what is locked already; it is added to.

    Raises:
        RequestError: they depend on each other in a cycle.
        TrustError: a publisher is not trusted.
    """
    locks = {} if kernel_locks is None else kernel_locks
    chain = set() if seen is None else seen
    if kernel in locks:
        return locks
    if kernel in chain:
        raise RequestError(f"Cyclic kernel dependency detected: {kernel.repo_id}")
    hub.check_trust_remote_code(kernel.repo_id, False, False)
    registry = hub.registry()
    revision = hub.resolve_kernel_version(kernel, local_files_only=False)
    commit = find_commit(registry, kernel.repo_id, None, revision)
    for name in registry.variants(kernel.repo_id, commit):
        document = Metadata.from_bytes(registry.metadata(kernel.repo_id, commit, name))
        for depend in document.kernel_depends:
            lock_kernel_tree(depend, api=api, seen=chain | {kernel}, kernel_locks=locks)
    locks[kernel] = KernelLock(commit)
    return locks


def extract_dependency_locks(kernels: list[KernelDependency], *, api: Any) -> KernelLocks:
    """The locks of several kernels, with all that they depend on."""
    locks: dict[KernelDependency, KernelLock] = {}
    for kernel in kernels:
        lock_kernel_tree(kernel, api=api, kernel_locks=locks)
    if not locks:
        raise RequestError("No kernels found to lock.")
    return KernelLocks(locks)


def _locked(repo_id: str, found: ours.KernelLocks) -> tuple[KernelLocks, KernelDependency]:
    locks = {
        KernelDependency.of(kernel.depend): KernelLock(kernel.commit) for kernel in found.kernels
    }
    return KernelLocks(locks), KernelDependency.of(found.of(repo_id).depend)


def get_locked_kernel_revision(
    repo_id: str, lockfile: Path
) -> tuple[KernelLocks, KernelDependency]:
    """The locks in a file, and the one of a kernel."""
    return _locked(repo_id, read_locks(lockfile))


def get_caller_locked_kernel_revision(repo_id: str) -> tuple[KernelLocks, KernelDependency]:
    """The locks that were installed with the calling code, and the one of a kernel."""
    return _locked(repo_id, read_locks(None))


def import_from_path(
    variant_path: Path, deps: Mapping[str, ModuleType], repo_info: RepoInfo | None = None
) -> ModuleType:
    """Import a variant, if the trust policies admit it and its files are those of its digest.

    Raises:
        KernforgeError: what ``get_local_kernel`` raises.
        Exception: whatever the kernel itself raises while it is imported.
    """
    with importer.lock:
        if (known := importer.loaded(variant_path)) is not None:
            return known
        search = hub.search()
        repo_id = None if repo_info is None else repo_info.repo_id
        place = variant_path.resolve().as_uri() if repo_id is None else search.registry.url
        found = admit_directory(search, variant_path, Subject(repo_id=repo_id, registry=place))
        node = Node(
            path=variant_path,
            link_root=found.link_root,
            metadata=found.metadata,
            host=probe("cpu"),
            admission=found.admission,
            repo_info=repo_info,
        )
        libraries = verify_to_load(node)
        try:
            module = importer.import_kernel(
                variant_path,
                found.metadata,
                dependencies=deps,
                repo_info=repo_info,
                libraries=libraries,
            )
        finally:
            if libraries is not None:
                libraries.close_unused()
        audit_log.record(node, search.environment)
        return module

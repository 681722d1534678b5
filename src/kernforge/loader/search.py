# SPDX-License-Identifier: Apache-2.0
"""Find a kernel's variant for this process with its dependencies, check and verify them.

A request names a kernel by version or revision, and a lock by commit; a ``kernel-status.toml``
redirects. ``LOCAL_KERNELS`` overrides a registry's kernel by a local directory, but not a locked
kernel. Nothing is imported here.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge.artifact.directories import BuiltVariant, link_root
from kernforge.artifact.integrity import verify_tree
from kernforge.artifact.metadata import CLIENT_VERSION, FILE, SIGNATURE, python_depends
from kernforge.errors import (
    IntegrityError,
    KernelError,
    MachineError,
    MissingFileError,
    MissingPackageError,
    NetworkError,
    NotPublishedError,
    NoVariantError,
    RegistryError,
    RequestError,
)
from kernforge.loader.host import Host, has_module, probe, probe_to_load, with_device
from kernforge.loader.importer import RepoInfo
from kernforge.loader.resolve import Resolution, check_archs, check_driver, resolve, way_out
from kernforge.registry import names
from kernforge.registry.api import Answer, download_first, find, find_redirect, locked
from kernforge.registry.directory import Registries, read_checked
from kernforge.registry.names import SOURCE, Request
from kernforge.system.environment import Environment
from kernforge.system.files import refuse_writable
from kernforge.trust.admission import Admission, Allowed, Case
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from kernforge.loader.lock import KernelLocks  # slow, only for locked kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Node(BuiltVariant):
    """An admitted variant on this machine; its files are not verified.

    Attributes:
        repo_info: its origin; None for a local directory.
        depends: the variants of its dependencies, by repo id.
    """

    admission: Admission
    repo_info: RepoInfo | None = None
    depends: dict[str, Node] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Every node, dependencies first."""
        for node in self.depends.values():
            yield from node.walk()
        yield self


Builder: TypeAlias = Callable[[Answer, Host, Environment], BuiltVariant | None]
"""Builds the variant of a commit that fits a host, or finds it; None without source."""


@dataclass(frozen=True, slots=True)
class Search:
    """The registries and the conditions of a search for kernels.

    Attributes:
        backend: ``cpu``, or the one that torch is built for; None takes the latter, and without a
            GPU builds for the CPU first.
        trust_remote_code: the caller's consent, as ``Case`` takes it.
        locks: the commits to take, instead of those of versions and revisions.
        builder: builds a variant of a published kernel that has none for this machine.
        chain: the dependents that led here, each of which depends on the next.
    """

    registry: Registries
    backend: str | None
    environment: Environment
    trust_remote_code: Allowed = False
    locks: KernelLocks | None = None
    builder: Builder | None = None
    chain: tuple[str, ...] = ()

    def case(self, kernel: Answer | Path) -> Case:
        """The admission of a commit or a directory."""
        return Case(Subject.of(kernel), self.environment, self.trust_remote_code)

    def below(self, what: str) -> Search:
        """The search for the dependencies of a kernel."""
        if what in self.chain:
            cycle = " -> ".join((*self.chain[self.chain.index(what) :], what))
            raise KernelError(
                f"Cyclic kernel dependency: {cycle}", hint="remove one of them from kernel-depends"
            )
        return replace(self, chain=(*self.chain, what))


def local_override(environment: Environment, repo_id: str) -> Path | None:
    """The directory that overrides a kernel by ``LOCAL_KERNELS``."""
    text = environment.local_kernels
    return _parse_overrides(text).get(repo_id) if text else None


def with_override(text: str | None, repo_id: str, path: Path) -> str:
    """``LOCAL_KERNELS`` with one more directory, which overrides earlier entries of the kernel.

    Args:
        path: a directory that ``get_local_kernel`` takes.
    """
    # The last entry for a kernel counts, here and in the hub's client.
    return ":".join(filter(None, (text, f"{repo_id}={path}")))


@functools.lru_cache(maxsize=8)
def _parse_overrides(text: str) -> dict[str, Path]:
    entries = [entry.partition("=") for entry in text.split(":")]
    wrong = next((entry for entry in entries if not all(entry)), None)
    if wrong is not None:
        raise RequestError(
            f"Invalid LOCAL_KERNELS entry: {''.join(wrong)!r}",
            hint="write it like owner/name=path:owner/other=path",
        )
    return {repo_id: Path(path) for repo_id, _, path in entries}


def find_kernel(search: Search, request: Request) -> Node:
    """The variant of a kernel to load, from ``LOCAL_KERNELS`` or else the registry."""
    repo_id = request.repo_id
    if search.locks is not None:
        commit = search.locks.find(request).commit
        return _find_published(search, locked(search.registry, request, commit))
    override = local_override(search.environment, repo_id)
    if override is not None:
        return find_local(search.below(f"{repo_id} at {override}"), override)
    return find_answer(search, find(search.registry, request))


def find_answer(search: Search, answer: Answer) -> Node:
    """The variant of a commit to load, or of the kernel that it redirects to."""
    moved = find_redirect(answer)
    if moved is None:
        return _find_published(search, answer)
    search.case(answer).admit_unsigned(f"a redirect to {moved.repo_id}")
    _warn("kernel %s moved to %s (%s)", answer.repo_id, moved.repo_id, moved)
    return find_kernel(search.below(str(answer)), moved)


def _warn(message: str, *arguments: object) -> None:
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning(message, *arguments)


def _find_published(search: Search, answer: Answer) -> Node:
    """The variant to load among those of a commit."""
    repo_id, commit = answer.repo_id, answer.commit
    search = search.below(str(answer))
    host = probe_to_load(search.backend)
    published = answer.variants
    resolution = resolve(published, host)
    if resolution.best is None:
        if not published and not answer.registry.has_commit(repo_id, commit):
            raise NotPublishedError(
                f"{repo_id} is locked to commit {commit}, which registry {answer.registry.url} "
                "lacks",
                hint="download what is locked first: kernforge get PROJECT",
            )
        return _with_depends(search, _build_variant(search, answer, resolution, host))
    return _with_depends(search, fetch_variant(search, answer, resolution.best.name))


def _with_depends(search: Search, node: Node) -> Node:
    wanted = node.metadata.kernel_depends
    if not wanted:
        return node
    requests = (names.request(each.repo_id, each.version, each.revision) for each in wanted)
    return replace(node, depends={each.repo_id: find_kernel(search, each) for each in requests})


def fetch_variant(search: Search, answer: Answer, name: str) -> Node:
    """Admit a variant of a commit by its document alone, then fetch its files."""
    registry, repo_id, commit = answer.registry, answer.repo_id, answer.commit
    document = registry.metadata(repo_id, commit, name)
    if search.locks is not None:
        search.locks.check(repo_id, commit, name, document)
    admission, metadata = search.case(answer).admit(
        document,
        lambda: answer.small_file(f"build/{name}/{SIGNATURE}"),
        source=f"{repo_id}/build/{name}/{FILE}",
    )
    return Node(
        path=registry.fetch(repo_id, commit, name),
        link_root=registry.link_root(repo_id),
        metadata=metadata,
        admission=admission,
        repo_info=RepoInfo(repo_id=repo_id, revision=commit),
    )


def _build_variant(search: Search, answer: Answer, resolution: Resolution, host: Host) -> Node:
    """The variant built from a kernel's source."""
    if search.builder is not None:
        admission = search.case(answer).admit_unsigned("a build from its source")
        built = search.builder(answer, host, search.environment)
        if built is not None:
            return Node(
                path=built.path,
                link_root=built.link_root,
                metadata=built.metadata,
                admission=admission,
                repo_info=RepoInfo(repo_id=answer.repo_id, revision=answer.commit),
            )
    hint = download_first(answer.registry) or way_out(resolution, host)
    if search.builder is not None:
        hint += "; build=True needs the kernel's source, which is not published"
    elif answer.small_file(f"{SOURCE}/kernforge.lock") is not None:
        hint += "; or pass build=True to get_kernel: its source and lock are published"
    if other := _other_major(answer, host):
        hint = f"version {other} has a build that fits; or {hint}"
    raise _no_variant_error(search.chain[-1], resolution, hint)


def _other_major(answer: Answer, host: Host) -> int | None:
    """The newest other major version with a variant that fits; None without one."""
    registry, repo_id = answer.registry, answer.repo_id
    with contextlib.suppress(NetworkError, RegistryError):  # of an error that names more
        refs = registry.refs(repo_id)
        for major in reversed(names.majors(refs)):
            commit = refs[f"v{major}"]
            if commit != answer.commit and resolve(registry.variants(repo_id, commit), host).best:
                return major
    return None


def find_local(search: Search, directory: Path) -> Node:
    """The variant to load from a directory, from its ``build/``, or the directory itself."""
    directory = directory.absolute()
    if not directory.is_dir():
        raise NoVariantError(
            f"Cannot find a build variant for this system in {directory}: there is no such "
            "directory",
            hint="name a project, a directory of variants or a variant",
        )
    host = probe_to_load(search.backend)
    tried = Resolution(decisions=())
    for base in (directory, directory / "build"):
        folders = sorted(path.name for path in base.glob("*/") if path.is_dir())
        resolution = resolve(folders, host)
        if resolution.best is not None:
            return _local_node(search, base / resolution.best.name)
        tried = resolution if resolution.decisions else tried
    if not (directory / FILE).is_file():
        raise _no_variant_error(str(directory), tried, way_out(tried, host))
    _check_named(directory.name, search.backend, host)
    return _local_node(search, directory)


def _check_named(name: str, backend: str | None, host: Host) -> None:
    """Refuse a variant that the user named by its directory, if it could crash here.

    A build for the CPU fits a machine with a GPU too. A build without machine code is loaded even
    for another backend, with a warning.
    """
    resolution = resolve([name], host)
    if resolution.best is not None or not resolution.decisions:
        return
    if backend is None and resolve([name], probe("cpu")).best is not None:
        return
    decision = resolution.decisions[0]
    if not decision.variant.is_noarch:
        raise _no_variant_error(name, resolution, way_out(resolution, host))
    _warn("%s is loaded: it %s", name, decision.reason)


def _local_node(search: Search, path: Path) -> Node:
    try:
        document = read_checked(path / FILE, link_root(path))
    except FileNotFoundError:
        raise MissingFileError(f"{path / FILE} is missing", hint="build the kernel again") from None
    admission, metadata = search.case(path).admit(
        document, lambda: _read_signature(path), source=str(path / FILE)
    )
    node = Node(path=path, link_root=link_root(path), metadata=metadata, admission=admission)
    return _with_depends(search, node)


def _read_signature(path: Path) -> bytes | None:
    try:
        return read_checked(path / SIGNATURE, link_root(path))
    except FileNotFoundError:
        return None


def _no_variant_error(what: str, resolution: Resolution, hint: str) -> NoVariantError:
    listing = f":\n\n{resolution.trace()}\n" if resolution.decisions else ""
    return NoVariantError(
        f"Cannot find a build variant for this system in {what}{listing}", hint=hint
    )


def check_needs(node: Node, environment: Environment) -> None:
    """Refuse a kernel whose requirements this process lacks; warn of a dirty build."""
    metadata = node.metadata
    known = python_depends(metadata.backend)
    for name in metadata.python_depends:
        depend = known.get(name)
        if depend is None:
            raise KernelError(
                f"Kernel module `{metadata.python_name}` uses the Python package {name!r}, which "
                f"is not among those that a kernel for {metadata.backend} may use",
                hint=f"it may use {', '.join(known)}; a newer kernforge may allow more",
            )
        if depend.module is not None and not has_module(depend.module):
            raise MissingPackageError(
                f"Kernel module `{metadata.python_name}` requires Python dependency "
                f"`{depend.package}`",
                hint=f"pip install {depend.package}",
            )
    wanted, claimed = metadata.kernels_minver, environment.kernforge_kernels_version
    claimed = claimed or CLIENT_VERSION
    if wanted is not None and _release(wanted) > _release(claimed):
        raise MachineError(
            f"Kernel {metadata.name!r} variant {node.path.name!r} requires kernels>={wanted}, "
            f"and this kernforge stands for version {claimed}",
            hint="pip install --upgrade kernforge, or take an older version of the kernel; "
            f"KERNFORGE_KERNELS_VERSION={wanted} tries it nevertheless",
        )
    if metadata.provenance is not None and metadata.provenance.dirty:
        import logging  # noqa: PLC0415 - slow, and rarely needed

        logging.getLogger("kernforge").warning(
            "%s was built from a dirty checkout: its recorded commit lacks some changes", node.path
        )


def _release(version: str) -> tuple[int, ...]:
    """Major, minor and patch of a version, whose import by ``packaging`` is slow."""
    return tuple(int(part) for part in (*re.findall(r"\d+", version), 0, 0, 0)[:3])


def check_device(node: Node) -> None:
    """Refuse a build whose device code cannot run on the current GPU and its driver."""
    metadata = node.metadata
    if metadata.backend not in {"cuda", "rocm"}:
        return
    host = with_device(probe())
    named = f"kernel {metadata.name!r} ({node.path.name})"
    if reason := check_driver(node.path.name, host):
        raise MachineError(
            f"{named} cannot run here: {reason}",
            hint="update the driver, or install a torch for the CUDA version that it supports",
        )
    if reason := check_archs(metadata.backend, metadata.archs, host):
        raise MachineError(
            f"{named} does not support the current device: {reason}",
            hint="build it for that architecture; or pass check_arch=False to get_kernel if it "
            "can run there in another way, such as with Triton",
        )


def verify(node: Node) -> None:
    """Hash every file of a kernel and compare with the digest of its build."""
    digest = node.metadata.digest
    if digest is None and (node.repo_info is not None or node.admission.signers):
        raise IntegrityError(
            f"{node.path / FILE} has no digest, so nothing can be verified",
            hint="it is an old build: build and publish it again, or load it unverified with "
            "get_local_kernel(path)",
        )
    places = [node.path, *node.path.parents]
    top = places.index(node.link_root) if node.link_root in places else 0
    for place in places[: top + 2]:  # up to the registry
        refuse_writable(place)
    if digest is not None:
        verify_tree(node.path, digest, within=node.link_root)
        for name in digest.files:
            refuse_writable(node.path / name)

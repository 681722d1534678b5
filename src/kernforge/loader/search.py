# SPDX-License-Identifier: Apache-2.0
"""Find a kernel's variant for this process, and those of the kernels that it depends on.

A kernel is asked for by version or revision, or a lock says its commit; a ``kernel-status.toml``
says where it went. ``LOCAL_KERNELS`` puts a local directory in the place of a registry's kernel,
except of a locked one: a local directory is the user's own word, as for ``get_local_kernel``.
Nothing is verified or imported here.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge.artifact.metadata import FILE, SIGNATURE, Metadata
from kernforge.errors import (
    KernelError,
    MissingFileError,
    NotPublishedError,
    NoVariantError,
    RequestError,
)
from kernforge.loader.host import Host, probe, probe_to_load
from kernforge.loader.importer import RepoInfo
from kernforge.loader.resolve import Resolution, resolve, way_out
from kernforge.registry import names
from kernforge.registry.api import Answer, download_first, find, find_redirect, locked
from kernforge.registry.base import Registries
from kernforge.registry.directory import read_checked
from kernforge.registry.names import SOURCE, Request, majors
from kernforge.system.environment import Environment
from kernforge.trust.admission import Admission, Allowed, Case
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from kernforge.loader.lock import KernelLocks  # slow, only for locked kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A variant that was admitted and is on this machine; its files are not verified.

    Attributes:
        link_root: where its links may lead.
        admission: why the trust policy admits it.
        repo_info: its origin; None for a local directory.
        depends: the variants of its dependencies, by repo id.
    """

    path: Path
    link_root: Path
    metadata: Metadata
    admission: Admission
    repo_info: RepoInfo | None = None
    depends: dict[str, Node] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Every node, dependencies first."""
        for node in self.depends.values():
            yield from node.walk()
        yield self


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A variant that was built on this machine: its directory, and where its links may lead."""

    path: Path
    link_root: Path


Builder: TypeAlias = Callable[[Answer, Host, Environment], Built | None]
"""Builds the variant of a commit that fits a host, or finds it; None without source."""


@dataclass(frozen=True, slots=True)
class Search:
    """The registries and the conditions of a search for kernels.

    Attributes:
        backend: ``cpu``, or the one that torch is built for; None takes the latter, and without a
            GPU builds for the CPU first.
        environment: names local kernels and trust policies.
        trust_remote_code: what the caller allows, as ``Case`` takes it.
        locks: the commits to take, instead of what versions and revisions name.
        builder: builds a variant of a published kernel that has none for this machine.
        chain: the kernels that led here, each of which depends on the next.
    """

    registry: Registries
    backend: str | None
    environment: Environment
    trust_remote_code: Allowed = False
    locks: KernelLocks | None = None
    builder: Builder | None = None
    chain: tuple[str, ...] = ()

    def case(self, answer: Answer) -> Case:
        """A kernel of a registry, as the trust policy is asked about it."""
        registry = answer.registry
        subject = Subject(repo_id=answer.repo_id, registry=registry.url, major=answer.major)
        allowed = self.trust_remote_code
        return Case(subject, self.environment, allowed, registry.is_trusted_publisher)

    def below(self, what: str) -> Search:
        """The search for the dependencies of a kernel.

        Raises:
            KernelError: the kernel led here already.
        """
        if what in self.chain:
            cycle = " -> ".join((*self.chain[self.chain.index(what) :], what))
            raise KernelError(
                f"Cyclic kernel dependency: {cycle}", hint="remove one of them from kernel-depends"
            )
        return replace(self, chain=(*self.chain, what))


def local_override(environment: Environment, repo_id: str) -> Path | None:
    """The directory that ``LOCAL_KERNELS`` puts in the place of a kernel."""
    text = environment.local_kernels
    return _parse_overrides(text).get(repo_id) if text else None


def with_override(text: str | None, repo_id: str, path: Path) -> str:
    """``LOCAL_KERNELS`` with one more directory, which counts where the kernel was named before.

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
    """The variant of a kernel to load, from ``LOCAL_KERNELS`` or else the registry.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision.
        NoVariantError: no variant fits; the message says why for each.
        KernelError: kernels depend on each other in a cycle.
        RequestError: the search has locks, and it is not locked.
        TrustError: the trust policy refuses one.
        IntegrityError: a document cannot be read, or its signature is of other bytes.
    """
    repo_id = request.repo_id
    if search.locks is not None:
        commit = search.locks.find(request).commit
        return _find_published(search, locked(search.registry, request, commit))
    override = local_override(search.environment, repo_id)
    if override is not None:
        return find_local(search.below(f"{repo_id} at {override}"), override)
    answer = find(search.registry, request)
    moved = find_redirect(answer)
    if moved is None:
        return _find_published(search, answer)
    search.case(answer).admit_unsigned(f"a redirect to {moved.repo_id}")
    _warn("kernel %s moved to %s (%s)", repo_id, moved.repo_id, moved)
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
        found = _build_variant(search, answer, resolution, host)
    else:
        found = fetch_variant(search, answer, resolution.best.name)
    return _with_depends(search, found)


def _with_depends(search: Search, node: Node) -> Node:
    wanted = node.metadata.kernel_depends
    if not wanted:
        return node
    requests = (names.request(each.repo_id, each.version, each.revision) for each in wanted)
    return replace(node, depends={each.repo_id: find_kernel(search, each) for each in requests})


def fetch_variant(search: Search, answer: Answer, name: str) -> Node:
    """Admit a variant of a commit by its document alone, then fetch its files.

    Raises:
        RequestError: the search has locks, and it is not locked.
        TrustError: the trust policy refuses it.
        IntegrityError: its document cannot be read, is not what was locked, or its signature is of
            other bytes.
    """
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
    """The variant built from a kernel's source.

    Raises:
        NoVariantError: the search has no builder, or the kernel has no source; with advice: the
            newest version if that fits, else the other possibilities.
    """
    if search.builder is not None:
        admission = search.case(answer).admit_unsigned("a build from its source")
        built = search.builder(answer, host, search.environment)
        if built is not None:
            path = built.path / FILE
            return Node(
                path=built.path,
                link_root=built.link_root,
                metadata=Metadata.from_json(path.read_bytes(), source=str(path)),
                admission=admission,
                repo_info=RepoInfo(repo_id=answer.repo_id, revision=answer.commit),
            )
    hint = _newer_version(answer, host)
    if not hint:
        hint = download_first(answer.registry) or way_out(resolution, host)
        if search.builder is not None:
            hint += "; build=True found no source to build it from"
        elif answer.small_file(f"{SOURCE}/kernforge.lock") is not None:
            hint += "; or pass build=True to get_kernel: its source and lock are published"
    raise _no_variant_error(search.chain[-1], resolution, hint)


def find_local(search: Search, directory: Path) -> Node:
    """The variant to load from a directory, from its ``build/``, or the directory itself.

    Raises:
        NoVariantError: no variant fits; the message says why for each.
        TrustError: the trust policy refuses it.
        IntegrityError: its document is missing or cannot be read.
    """
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

    A build for the CPU fits a machine with a GPU, since the user named it. One without machine code
    is loaded even for another backend, with a warning.
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
        document = read_checked(path / FILE)
    except FileNotFoundError:
        raise MissingFileError(f"{path / FILE} is missing", hint="build the kernel again") from None
    subject = Subject(repo_id=None, registry=path.resolve().as_uri())
    case = Case(subject, search.environment, search.trust_remote_code)
    admission, metadata = case.admit(
        document, lambda: _read_signature(path), source=str(path / FILE)
    )
    node = Node(path=path, link_root=link_root(path), metadata=metadata, admission=admission)
    return _with_depends(search, node)


def link_root(path: Path) -> Path:
    """Where the links of a variant's directory may lead: in a cache or registry, to its blobs."""
    caches = (p for p in path.parents if p.name.startswith(("kernels--", "models--")))
    return next(caches, path)


def _read_signature(path: Path) -> bytes | None:
    try:
        return read_checked(path / SIGNATURE)
    except FileNotFoundError:
        return None


def _newer_version(answer: Answer, host: Host) -> str:
    """Advice to take the newest major version, if it fits and is another one."""
    registry, repo_id = answer.registry, answer.repo_id
    refs = registry.refs(repo_id)
    newest = max(majors(refs), default=None)
    if newest is None or refs[f"v{newest}"] == answer.commit:
        return ""
    best = resolve(registry.variants(repo_id, refs[f"v{newest}"]), host).best
    return (
        f"version {newest} has a build that fits, {best.name}: pass version={newest} (a command: "
        f"--version {newest})"
        if best
        else ""
    )


def _no_variant_error(what: str, resolution: Resolution, hint: str) -> NoVariantError:
    listing = f":\n\n{resolution.trace()}\n" if resolution.decisions else ""
    return NoVariantError(
        f"Cannot find a build variant for this system in {what}{listing}", hint=hint
    )

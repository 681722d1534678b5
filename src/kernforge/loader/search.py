# SPDX-License-Identifier: Apache-2.0
"""Find a kernel's variant for this process, and those of the kernels that it depends on.

A kernel is asked for by version or revision, or a lock says its commit; a ``kernel-status.toml``
says where it went. ``LOCAL_KERNELS`` puts a local directory in the place of a registry's kernel,
except of a locked one. Nothing is verified or imported here.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from kernforge.artifact.metadata import FILE, SIGNATURE, KernelDepend, Metadata
from kernforge.errors import (
    AbsentError,
    KernelError,
    MissingFileError,
    NotPublishedError,
    NoVariantError,
    RequestError,
)
from kernforge.loader.host import probe, probe_to_load
from kernforge.loader.importer import RepoInfo
from kernforge.loader.resolve import Resolution, resolve, way_out
from kernforge.registry.api import (
    Registry,
    asks_no_hub,
    find_revision,
    find_version,
    member_for,
    unasked_hub,
)
from kernforge.registry.directory import read_checked
from kernforge.registry.names import SOURCE, majors, versions
from kernforge.registry.redirect import find_redirect
from kernforge.trust import admission as trust_admission
from kernforge.trust import releases as trust_releases
from kernforge.trust.policy import Subject
from kernforge.trust.releases import ANYTHING, Asked, SignedList

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.loader.host import Host
    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.registry.redirect import Redirect
    from kernforge.system.environment import Environment
    from kernforge.trust.admission import Admission

_CACHE_DIR_PREFIXES = ("kernels--", "models--")

_MAJOR_NAME = re.compile(r"v(\d+)(?:\..*)?")
_RELEASE_NAME = re.compile(r"v(\d+(\.\d+\.\d+)?)")
# A version with bounds that allow one major version only.
_ONE_MAJOR = re.compile(r"\s*(?:==|~=)?\s*(\d+)(?:\.[\d.*]+)?\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A variant of a kernel to load, with those of the kernels that it depends on.

    Attributes:
        link_root: where its links may lead.
        admission: why the trust policy admits it.
        repo_info: its origin; None for a local directory.
        depends: the variants of its dependencies, by repo id.
    """

    path: Path
    link_root: Path
    metadata: Metadata
    host: Host
    admission: Admission
    repo_info: RepoInfo | None = None
    depends: dict[str, Node] = field(default_factory=dict)

    def walk(self) -> Iterator[Node]:
        """Every node, dependencies first."""
        for node in self.depends.values():
            yield from node.walk()
        yield self


@dataclass(frozen=True, slots=True)
class Search:
    """The registry and the conditions of a search for kernels.

    Attributes:
        backend: ``cpu``, or the one that torch is built for; None takes the latter, and without a
            GPU builds for the CPU first.
        environment: names local kernels and trust policies.
        trust_remote_code: what the caller allows, as ``admission.admit`` takes it.
        locks: the commits to take, instead of what versions and revisions name.
        builder: builds a variant of a published kernel that has none for this machine.
        chain: the kernels that led here, each of which depends on the next.
    """

    registry: Registry
    backend: str | None
    environment: Environment
    trust_remote_code: bool | list[str] = False
    locks: KernelLocks | None = None
    builder: Builder | None = None
    chain: tuple[str, ...] = ()


class Builder(Protocol):
    """Builds a variant that a registry lacks."""

    def __call__(
        self, registry: Registry, repo_id: str, commit: str, host: Host, environment: Environment
    ) -> Built | None:
        """Build the variant of a commit that fits a host, or find it; None without its source."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Built:
    """A variant that was built on this machine: its directory, and where its links may lead."""

    path: Path
    link_root: Path


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


def check_request(version: int | str | None, revision: str | None) -> None:
    """Refuse a request for a kernel that names both a version and a revision, or neither."""
    hint = "pass version=<major> for a stable interface, or revision=<branch, tag or commit>"
    if version is None and revision is None:
        raise RequestError(
            "A kernel version or revision must be specified: neither was given", hint=hint
        )
    if version is not None and revision is not None:
        raise RequestError(
            "Only one of version and revision must be specified: both were given", hint=hint
        )


def find_commit(
    registry: Registry, repo_id: str, version: int | str | None, revision: str | None
) -> str:
    """The commit of a version or a revision, whichever is not None.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision; an AbsentError
            where no hub was asked.
    """
    if version is not None:
        commit, asked = find_version(registry, repo_id, version), f"version {version}"
    else:
        commit = find_revision(registry, repo_id, revision or "")
        asked = f"revision {revision!r}"
    if commit is not None:
        return commit
    names = registry.ref_names(repo_id)
    here = asks_no_hub(registry)
    kind = AbsentError if here else NotPublishedError
    if not names and not registry.commits(repo_id):
        local = " (there is no local snapshot of it)" if here else ""
        raise kind(
            f"registry {registry.url} has no kernel {repo_id!r}{local}"
            + _missing_directory(registry),
            hint=_of_the_hub(registry)
            or "publish it there, or name its registry: --registry, "
            "registry=... or KERNFORGE_REGISTRY",
        )
    tags = ", ".join(reversed(versions(names).values())) or "none"
    branches = ", ".join(map(str, majors(names))) or "none"
    raise kind(
        f"{repo_id} has no {asked} in registry {registry.url}: {asked[0].upper()}{asked[1:]} not "
        f"found, available versions: {branches}",
        hint=_of_the_hub(registry) or f"major versions there: {branches}; tags: {tags}",
    )


def find_kernel(
    search: Search,
    repo_id: str,
    version: int | str | None,
    revision: str | None,
) -> Node:
    """The variant of a kernel to load, from ``LOCAL_KERNELS`` or else the registry.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision.
        NoVariantError: no variant fits; the message says why for each.
        KernelError: kernels depend on each other in a cycle.
        RequestError: the search has locks, and it is not locked.
        TrustError: the trust policy refuses one.
        IntegrityError: a document cannot be read, or its signature is of other bytes.
    """
    if search.locks is not None:
        depend = KernelDepend(
            repo_id=repo_id, version=None if version is None else int(version), revision=revision
        )
        commit = search.locks.find(depend).commit
        return _find_published(search, repo_id, commit, asked_for(version, revision, locked=True))
    override = local_override(search.environment, repo_id)
    if override is not None:
        return find_local(_descend(search, f"{repo_id} at {override}"), override)
    commit = find_commit(search.registry, repo_id, version, revision)
    moved = _follow_redirect(search, repo_id, commit)
    if moved is not None:
        return find_kernel(
            _descend(search, f"{repo_id} at {commit}"),
            moved.repo_id,
            None,
            moved.revision,
        )
    return _find_published(search, repo_id, commit, asked_for(version, revision))


def asked_for(version: int | str | None, revision: str | None, *, locked: bool = False) -> Asked:
    """What a version or a revision allows; of a lock, whose commit may be an older release."""
    major = _asked_major(version, revision)
    specifier = None
    if version is not None:
        whole = isinstance(version, int) or version.isdecimal()
        exact = re.fullmatch(r"v?([0-9]+(?:\.[0-9]+)*)", str(version))
        specifier = f"=={exact[1]}{'.*' if whole else ''}" if exact else str(version)
    elif found := _RELEASE_NAME.fullmatch(revision or ""):
        specifier = f"=={found[1]}{'' if found[2] else '.*'}"
    return Asked(major=major, specifier=specifier, newest=specifier is not None and not locked)


def _asked_major(version: int | str | None, revision: str | None) -> int | None:
    """The one major version that a version or revision allows; None where several may."""
    if isinstance(version, int):
        return version
    found = _ONE_MAJOR.fullmatch(version) if version else _MAJOR_NAME.fullmatch(revision or "")
    return int(found[1]) if found else None


def signed_list(registry: Registry, repo_id: str) -> SignedList | None:
    """The signed list of a kernel's releases, as its registry has it; None without."""
    commit = registry.ref(repo_id, trust_releases.BRANCH)
    if commit is None:
        return None
    document = registry.small_file(repo_id, commit, trust_releases.FILE)
    signatures = registry.small_file(repo_id, commit, trust_releases.SIGNATURES)
    if document is None or signatures is None:
        return None
    return SignedList(document=document, signatures=signatures)


def _follow_redirect(search: Search, repo_id: str, commit: str) -> Redirect | None:
    """The new name of a kernel that has moved, with a warning; None where it has not.

    Raises:
        TrustError: the rules for the old name do not allow it.
    """
    moved = find_redirect(search.registry, repo_id, commit)
    if moved is None:
        return None
    registry = member_for(search.registry, repo_id)
    trust_admission.admit_redirect(
        Subject(repo_id=repo_id, registry=registry.url),
        moved.repo_id,
        vouches=registry.trusted_publisher,
        environment=search.environment,
        trust_remote_code=search.trust_remote_code,
    )
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning(
        "kernel %s moved to %s (revision %s)", repo_id, moved.repo_id, moved.revision
    )
    return moved


def _find_published(search: Search, repo_id: str, commit: str, asked: Asked) -> Node:
    """The variant to load among those of a commit."""
    registry = member_for(search.registry, repo_id)
    search = _descend(search, f"{repo_id} at {commit}")
    host = probe_to_load(search.backend)
    names = registry.variants(repo_id, commit)
    resolution = resolve(names, host)
    if resolution.best is None:
        if not names and search.locks is not None and commit not in registry.commits(repo_id):
            raise NotPublishedError(
                f"{repo_id} is locked to commit {commit}, which registry {registry.url} lacks",
                hint="download what is locked first: kernforge download PROJECT",
            )
        found = _build_variant(search, repo_id, commit, resolution, host)
    else:
        found = fetch_variant(search, repo_id, commit, resolution.best.name, asked)
    return Node(
        path=found.path,
        link_root=found.link_root,
        metadata=found.metadata,
        host=host,
        admission=found.admission,
        repo_info=RepoInfo(repo_id=repo_id, revision=commit),
        depends=_find_depends(search, found.metadata),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchedVariant:
    """A variant that was admitted and is on this machine; its files are not verified."""

    path: Path
    link_root: Path
    metadata: Metadata
    admission: Admission


def fetch_variant(
    search: Search, repo_id: str, commit: str, name: str, asked: Asked = ANYTHING
) -> FetchedVariant:
    """Admit a variant of a commit by its document alone, then fetch its files.

    Raises:
        RequestError: the search has locks, and it is not locked.
        TrustError: the trust policy refuses it.
        IntegrityError: its document cannot be read, is not what was locked, or its signature is of
            other bytes.
    """
    registry = member_for(search.registry, repo_id)
    document = registry.metadata(repo_id, commit, name)
    if search.locks is not None:
        search.locks.check(repo_id, commit, name, document)
    admission = trust_admission.admit(
        Subject(repo_id=repo_id, registry=registry.url),
        document,
        signature=lambda: registry.companion(repo_id, commit, name, SIGNATURE),
        vouches=registry.trusted_publisher,
        environment=search.environment,
        trust_remote_code=search.trust_remote_code,
        releases=lambda: signed_list(registry, repo_id),
        asked=asked,
    )
    metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}")
    if admission.signers:
        subject = Subject(repo_id=repo_id, registry=registry.url)
        trust_admission.refuse_other_document(subject, metadata.name, metadata.version, asked.major)
    path, link_root = registry.fetch(repo_id, commit, name), registry.link_root(repo_id)
    if search.locks is not None and search.locks.old:
        from kernforge.loader import legacy_lock  # noqa: PLC0415 - few locks are so old

        legacy_lock.check(search.locks, repo_id, name, path, link_root)
    return FetchedVariant(path=path, link_root=link_root, metadata=metadata, admission=admission)


def _build_variant(
    search: Search, repo_id: str, commit: str, resolution: Resolution, host: Host
) -> FetchedVariant:
    """The variant built from a kernel's source, if the search has a builder.

    Raises:
        NoVariantError: it has none, or the kernel has no source.
    """
    registry = member_for(search.registry, repo_id)
    if search.builder is None:
        raise _nothing_fits_error(search, repo_id, commit, resolution, host)
    # No signature covers the result of a build: where one is demanded, the kernel is refused.
    admission = trust_admission.admit(
        Subject(repo_id=repo_id, registry=registry.url),
        b"",
        signature=lambda: None,
        vouches=registry.trusted_publisher,
        environment=search.environment,
        trust_remote_code=search.trust_remote_code,
    )
    built = search.builder(registry, repo_id, commit, host, search.environment)
    if built is None:
        raise _nothing_fits_error(search, repo_id, commit, resolution, host)
    metadata = Metadata.from_json((built.path / FILE).read_bytes(), source=str(built.path / FILE))
    return FetchedVariant(
        path=built.path, link_root=built.link_root, metadata=metadata, admission=admission
    )


def _nothing_fits_error(
    search: Search, repo_id: str, commit: str, resolution: Resolution, host: Host
) -> NoVariantError:
    """The error, with advice: the newest version if that fits, else the other possibilities."""
    registry = member_for(search.registry, repo_id)
    hint = _newer_version(registry, repo_id, commit, host)
    if not hint:
        hint = _of_the_hub(registry) or way_out(resolution, host)
        lock = registry.small_file(repo_id, commit, f"{SOURCE}/kernforge.lock")
        if search.builder is not None:
            hint += "; build=True found no source to build it from"
        elif lock is not None:
            hint += "; or pass build=True to get_kernel: its source and lock are published"
    return _no_variant_error(search.chain[-1], resolution, hint)


def _descend(search: Search, what: str) -> Search:
    """The search for a dependency."""
    if what in search.chain:
        cycle = " -> ".join((*search.chain[search.chain.index(what) :], what))
        raise KernelError(
            f"Cyclic kernel dependency: {cycle}",
            hint="remove one of them from kernel-depends",
        )
    return replace(search, chain=(*search.chain, what))


def _of_the_hub(registry: Registry) -> str:
    """Advice where only what was downloaded from a hub is seen; empty elsewhere."""
    hub = unasked_hub(registry)
    return hub and (
        f"{hub} was not asked: download it first (kernforge download), without HF_HUB_OFFLINE"
    )


def _missing_directory(registry: Registry) -> str:
    """Text about a registry whose directory does not exist: most often its name is misspelt."""
    root = getattr(registry, "root", None)
    return ": that directory does not exist" if isinstance(root, Path) and not root.is_dir() else ""


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
            f"Cannot find a build variant for this system in {directory}: there is no such directory",
            hint="name a project, a directory of variants or a variant",
        )
    host = probe_to_load(search.backend)
    tried = Resolution(decisions=())
    for base in (directory, directory / "build"):
        names = sorted(path.name for path in base.glob("*/") if path.is_dir())
        resolution = resolve(names, host)
        if resolution.best is not None:
            return _local_node(search, base / resolution.best.name, host)
        tried = resolution if resolution.decisions else tried
    if (directory / FILE).is_file():
        return _local_node(search, directory, _host_for(directory.name, search.backend))
    raise _no_variant_error(str(directory), tried, way_out(tried, host))


def _host_for(name: str, backend: str | None) -> Host:
    """The host for a variant that the user named by its directory, if it fits.

    A build for the CPU fits a machine with a GPU, since the user named it. One without machine code
    is loaded even for another backend, with a warning; one with machine code could crash.
    """
    host = probe_to_load(backend)
    resolution = resolve([name], host)
    if resolution.best is not None or not resolution.decisions:
        return host
    if backend is None and resolve([name], probe("cpu")).best is not None:
        return probe("cpu")
    decision = resolution.decisions[0]
    if not decision.variant.is_noarch:
        raise _no_variant_error(name, resolution, way_out(resolution, host))
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning("%s is loaded: it %s", name, decision.reason)
    return host


def _local_node(search: Search, path: Path, host: Host) -> Node:
    found = admit_directory(search, path, Subject(repo_id=None, registry=path.resolve().as_uri()))
    return Node(
        path=path,
        link_root=found.link_root,
        metadata=found.metadata,
        host=host,
        admission=found.admission,
        depends=_find_depends(search, found.metadata),
    )


def admit_directory(search: Search, path: Path, subject: Subject) -> FetchedVariant:
    """Admit a variant in a directory by its document alone.

    Args:
        subject: what the rules are about: the directory, or the kernel that was downloaded there.

    Raises:
        TrustError: the trust policy refuses it.
        IntegrityError: its document is missing or cannot be read.
    """
    repo_id = subject.repo_id
    try:
        document = read_checked(path / FILE)
    except FileNotFoundError:
        raise MissingFileError(f"{path / FILE} is missing", hint="build the kernel again") from None
    signature = path / SIGNATURE
    admission = trust_admission.admit(
        subject,
        document,
        signature=lambda: signature.read_bytes() if signature.exists() else None,
        vouches=lambda _owner: None,
        environment=search.environment,
        trust_remote_code=search.trust_remote_code,
        releases=lambda: None if repo_id is None else signed_list(search.registry, repo_id),
    )
    metadata = Metadata.from_json(document, source=str(path / FILE))
    if admission.signers:
        trust_admission.refuse_other_document(subject, metadata.name, metadata.version, None)
    # In the directory of a cache or registry, links lead to its blobs.
    link_roots = [parent for parent in path.parents if parent.name.startswith(_CACHE_DIR_PREFIXES)]
    return FetchedVariant(
        path=path,
        link_root=link_roots[0] if link_roots else path,
        metadata=metadata,
        admission=admission,
    )


def _find_depends(search: Search, metadata: Metadata) -> dict[str, Node]:
    return {
        depend.repo_id: find_kernel(search, depend.repo_id, depend.version, depend.revision)
        for depend in metadata.kernel_depends
    }


def _newer_version(registry: Registry, repo_id: str, commit: str, host: Host) -> str:
    """Advice to take the newest major version, if it fits and is another one."""
    newest = max(majors(registry.ref_names(repo_id)), default=None)
    if newest is None:
        return ""
    other = registry.ref(repo_id, f"v{newest}")
    if other is None or other == commit:
        return ""
    best = resolve(registry.variants(repo_id, other), host).best
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

# SPDX-License-Identifier: Apache-2.0
"""Find a kernel's variant for this process, and those of the kernels that it depends on.

``LOCAL_KERNELS``, as ``owner/name=path[:owner/name=path]``, puts a local directory in the place of
a registry's kernel. Nothing is verified or imported here.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge import trust
from kernforge.errors import IntegrityError, NoVariantError, RegistryError, UsageError
from kernforge.host import probe
from kernforge.importer import RepoInfo
from kernforge.metadata import FILE, SIGNATURE, Metadata
from kernforge.policy import Subject
from kernforge.registry import Registry, find_revision, find_version, majors, versions
from kernforge.resolve import Resolution, resolve, way_out

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.facts import Host
    from kernforge.trust import Admission

_CACHE_DIR_PREFIXES = ("kernels--", "models--")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A kernel that was found, and those that it depends on by repo id.

    Attributes:
        path: the variant's directory.
        fence: where its links may lead.
        metadata: its document.
        host: what it was chosen for.
        admission: why the trust policy admits it.
        repo_info: its registry's name for it; None for a local directory.
        depends: what it depends on.
    """

    path: Path
    fence: Path
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
    """Where to look and what for, and what the caller trusts, as ``trust.admit`` takes it.

    ``chain`` is who depends on whom on the way here.
    """

    registry: Registry
    backend: str | None
    trust_remote_code: bool | list[str] = False
    chain: tuple[str, ...] = ()


class NotPublishedError(RegistryError):
    """The registry has no such kernel or version."""


def local_override(repo_id: str) -> Path | None:
    """The directory that ``LOCAL_KERNELS`` puts in the place of a kernel."""
    text = os.environ.get("LOCAL_KERNELS")
    return None if not text else _overrides(text).get(repo_id)


@functools.lru_cache(maxsize=8)
def _overrides(text: str) -> dict[str, Path]:
    entries = [entry.partition("=") for entry in text.split(":")]
    wrong = next((entry for entry in entries if not all(entry)), None)
    if wrong is not None:
        raise UsageError(
            f"LOCAL_KERNELS has an entry {''.join(wrong)!r}",
            hint="write it like owner/name=path:owner/other=path",
        )
    return {repo_id: Path(path) for repo_id, _, path in entries}


def find_commit(
    registry: Registry, repo_id: str, version: int | str | None, revision: str | None
) -> str:
    """The commit of a version or a revision, whichever is not None.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision.
    """
    if version is not None:
        found, asked = find_version(registry, repo_id, version), f"version {version}"
    else:
        found = find_revision(registry, repo_id, revision or "")
        asked = f"revision {revision!r}"
    if found is not None:
        return found
    names = registry.ref_names(repo_id)
    if not names and not registry.commits(repo_id):
        raise NotPublishedError(
            f"registry {registry.url} has no kernel {repo_id!r}",
            hint="publish it there, or name its registry: registry=..., or KERNFORGE_REGISTRY",
        )
    tags = ", ".join(reversed(versions(names).values())) or "none"
    branches = ", ".join(map(str, majors(names))) or "none"
    raise NotPublishedError(
        f"{repo_id} has no {asked} in registry {registry.url}",
        hint=f"major versions there: {branches}; tags: {tags}",
    )


def find(search: Search, repo_id: str, version: int | str | None, revision: str | None) -> Node:
    """The variant of a kernel to load, from ``LOCAL_KERNELS`` or else the registry.

    Raises:
        NotPublishedError: the registry has no such kernel, version or revision.
        NoVariantError: no variant fits; the message says why for each.
        RegistryError: kernels depend on each other in a circle.
        TrustError: the trust policy refuses one.
        IntegrityError: a document cannot be read, or its signature is of other bytes.
    """
    override = local_override(repo_id)
    if override is not None:
        return find_local(_step(search, f"{repo_id} at {override}"), override)
    registry = search.registry
    commit = find_commit(registry, repo_id, version, revision)
    search = _step(search, f"{repo_id} at {commit}")
    host = probe(search.backend)
    resolution = resolve(registry.variants(repo_id, commit), host)
    if resolution.best is None:
        hint = _newer_version(registry, repo_id, commit, host) or way_out(resolution, host)
        raise _no_variant(search.chain[-1], resolution, hint)
    name = resolution.best.name
    document = registry.metadata(repo_id, commit, name)
    admission = trust.admit(
        Subject(repo_id=repo_id, registry=registry.url),
        document,
        signature=lambda: registry.companion(repo_id, commit, name, SIGNATURE),
        vouches=registry.trusted_publisher,
        trust_remote_code=search.trust_remote_code,
    )
    metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}")
    return Node(
        path=registry.fetch(repo_id, commit, name),
        fence=registry.fence(repo_id),
        metadata=metadata,
        host=host,
        admission=admission,
        repo_info=RepoInfo(repo_id=repo_id, revision=commit),
        depends=_find_depends(search, metadata),
    )


def _step(search: Search, what: str) -> Search:
    """The search one dependency further on."""
    if what in search.chain:
        circle = " -> ".join((*search.chain[search.chain.index(what) :], what))
        raise RegistryError(
            f"kernels depend on each other in a circle: {circle}",
            hint="remove one of them from kernel-depends",
        )
    return replace(search, chain=(*search.chain, what))


def find_local(search: Search, directory: Path) -> Node:
    """The variant to load among those in a directory or its ``build/``, or the directory itself."""
    directory = directory.absolute()
    host = probe(search.backend)
    tried = Resolution(decisions=())
    for base in (directory, directory / "build"):
        names = sorted(path.name for path in base.glob("*/") if path.is_dir())
        resolution = resolve(names, host)
        if resolution.best is not None:
            return _local_node(search, base / resolution.best.name, host)
        tried = resolution if resolution.decisions else tried
    if (directory / FILE).is_file():
        return _local_node(search, directory, _host_for(directory.name, search.backend))
    raise _no_variant(str(directory), tried, way_out(tried, host))


def _host_for(name: str, backend: str | None) -> Host:
    """The host for a variant that the user pointed at, if it fits at all.

    A build for the CPU fits a machine with a GPU: pointing at it says what is wanted.
    """
    resolution = resolve([name], probe(backend))
    if backend is None and resolution.best is None:
        on_cpu = resolve([name], probe("cpu"))
        if on_cpu.best is not None:
            return probe("cpu")
    if resolution.decisions and resolution.best is None:
        raise _no_variant(name, resolution, way_out(resolution, probe(backend)))
    return probe(backend)


def _local_node(search: Search, path: Path, host: Host) -> Node:
    try:
        document = (path / FILE).read_bytes()
    except FileNotFoundError:
        raise IntegrityError(f"{path / FILE} is missing", hint="build the kernel again") from None
    signature = path / SIGNATURE
    admission = trust.admit(
        Subject(repo_id=None, registry=path.resolve().as_uri()),
        document,
        signature=lambda: signature.read_bytes() if signature.exists() else None,
        vouches=lambda _owner: None,
        trust_remote_code=search.trust_remote_code,
    )
    metadata = Metadata.from_json(document, source=str(path / FILE))
    # In a cache or registry that the user points into, links lead to its blobs.
    fences = [parent for parent in path.parents if parent.name.startswith(_CACHE_DIR_PREFIXES)]
    return Node(
        path=path,
        fence=fences[0] if fences else path,
        metadata=metadata,
        host=host,
        admission=admission,
        depends=_find_depends(search, metadata),
    )


def _find_depends(search: Search, metadata: Metadata) -> dict[str, Node]:
    return {
        depend.repo_id: find(search, depend.repo_id, depend.version, depend.revision)
        for depend in metadata.kernel_depends
    }


def _newer_version(registry: Registry, repo_id: str, commit: str, host: Host) -> str:
    """Advice to take the newest major version, if that one fits and is another."""
    newest = max(majors(registry.ref_names(repo_id)), default=None)
    if newest is None:
        return ""
    other = registry.ref(repo_id, f"v{newest}")
    if other is None or other == commit:
        return ""
    best = resolve(registry.variants(repo_id, other), host).best
    return (
        f"version {newest} has a build that fits, {best.name}: pass version={newest}"
        if best
        else ""
    )


def _no_variant(what: str, resolution: Resolution, hint: str) -> NoVariantError:
    listing = f":\n\n{resolution.trace()}\n" if resolution.decisions else ""
    return NoVariantError(f"no build of {what} fits this machine{listing}", hint=hint)

# SPDX-License-Identifier: Apache-2.0
"""Fetch kernels ahead of their use, for this machine or others, and for sites without a network.

What is fetched is admitted, verified and complete as if it were loaded, with every kernel that it
depends on. It stays in the registry's cache, or is copied to a directory that is a registry itself
and that the hub's client takes as its cache; files that are there and right are not copied again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import tree_files, verify_tree
from kernforge.artifact.metadata import FILE, SIGNATURE, KernelDepend, Metadata
from kernforge.errors import IntegrityError, NoVariantError, RegistryError
from kernforge.loader import legacy_lock
from kernforge.loader.resolve import resolve, way_out
from kernforge.loader.search import find_commit
from kernforge.registry import redirect
from kernforge.store import tree_archive
from kernforge.system import files
from kernforge.trust import admission
from kernforge.trust.policy import Subject

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernforge.loader.facts import Host
    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.registry.api import Registry
    from kernforge.registry.directory import DirectoryRegistry


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Which variants are wanted.

    Attributes:
        hosts: the one that each of these machines would load; None takes every variant.
        names: these variants instead.
    """

    hosts: tuple[Host, ...] | None = None
    names: tuple[str, ...] = ()

    def of(self, what: str, published: Sequence[str]) -> tuple[str, ...]:
        """The wanted ones of those that are published, sorted.

        Raises:
            NoVariantError: one is missing, or no variant fits a machine; it says why for each.
        """
        missing = sorted(set(self.names) - set(published))
        if missing:
            raise NoVariantError(
                f"{what} has no variant {', '.join(missing)}",
                hint=f"it has {', '.join(published) or 'none'}",
            )
        if self.names or self.hosts is None:
            return tuple(sorted(self.names or published))
        return tuple(sorted({_fitting(what, published, host) for host in self.hosts}))


def _fitting(what: str, published: Iterable[str], host: Host) -> str:
    resolution = resolve(published, host)
    if resolution.best is None:
        raise NoVariantError(
            f"no build of {what} fits that machine:\n\n{resolution.trace()}\n",
            hint=way_out(resolution, host),
        )
    return resolution.best.name


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """A variant that is here now, verified.

    Attributes:
        repo_id: of its kernel.
        commit: that it is of.
        refs: branches and tags that shall name the commit.
        variant: its name.
        path: its directory.
        fence: where its links may lead.
        metadata: its document.
    """

    repo_id: str
    commit: str
    refs: tuple[str, ...]
    variant: str
    path: Path
    fence: Path
    metadata: Metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Where to fetch from.

    Attributes:
        registry: where kernels are published.
        locks: the commits to take; None takes what versions and revisions name.
        trust_remote_code: what the caller trusts, as ``trust.admit`` takes it.
    """

    registry: Registry
    locks: KernelLocks | None = None
    trust_remote_code: bool | list[str] = False

    def commit(self, depend: KernelDepend) -> str:
        """The commit that a kernel is taken at."""
        if self.locks is not None:
            return self.locks.find(depend).commit
        return find_commit(self.registry, depend.repo_id, depend.version, depend.revision)

    def refs(self, depend: KernelDepend, commit: str) -> tuple[str, ...]:
        """What shall name the commit where it is copied to: as here, and as it was asked for."""
        repo_id, registry = depend.repo_id, self.registry
        names = registry.ref_names(repo_id)
        found = [name for name in names if registry.ref(repo_id, name) == commit]
        asked = depend.revision if depend.version is None else f"v{depend.version}"
        return tuple(sorted({*found, *([asked] if asked and not commit.startswith(asked) else [])}))


def locked(locks: KernelLocks) -> tuple[KernelDepend, ...]:
    """What an application itself asks for; every kernel where its lock does not tell."""
    if locks.pins is None:
        return tuple(kernel.depend for kernel in locks.kernels)
    return tuple(pin.depend for pin in locks.pins.kernels if pin.asked is not None)


def fetch(
    source: Source, wanted: Iterable[KernelDepend], selection: Selection
) -> Iterator[Fetched]:
    """Fetch and verify kernels with all that they depend on, each variant once.

    Raises:
        NoVariantError: a wanted variant is missing or none fits.
        RegistryError: the registry lacks a kernel, or it moved.
        TrustError: the trust policy refuses one.
        IntegrityError: a file is not what was built, or a document not what was locked.
    """
    pending = [(depend, source.commit(depend)) for depend in wanted]
    seen: set[tuple[KernelDepend, str]] = set()
    while pending:
        depend, commit = pending.pop(0)
        if (depend, commit) in seen:
            continue
        seen.add((depend, commit))
        _refuse_moved(source.registry, depend.repo_id, commit)
        what = f"{depend.repo_id} at {commit}"
        for name in selection.of(what, source.registry.variants(depend.repo_id, commit)):
            found = _fetch(source, depend, commit, name)
            yield found
            below = found.metadata.kernel_depends
            pending += [(inner, source.commit(inner)) for inner in below]


def _refuse_moved(registry: Registry, repo_id: str, commit: str) -> None:
    status = registry.small_file(repo_id, commit, redirect.FILE)
    if status is not None:
        moved = redirect.parse(status, source=f"{repo_id}/{redirect.FILE}")
        raise RegistryError(
            f"kernel {repo_id} moved to {moved.repo_id} (revision {moved.revision})",
            hint=f"download {moved.repo_id}, and ask for that one",
        )


def _fetch(source: Source, depend: KernelDepend, commit: str, name: str) -> Fetched:
    registry, repo_id = source.registry, depend.repo_id
    document = registry.metadata(repo_id, commit, name)
    if source.locks is not None:
        source.locks.check(repo_id, commit, name, document)
    admission.admit(
        Subject(repo_id=repo_id, registry=registry.url),
        document,
        signature=lambda: registry.companion(repo_id, commit, name, SIGNATURE),
        vouches=registry.trusted_publisher,
        trust_remote_code=source.trust_remote_code,
    )
    metadata = Metadata.from_json(document, source=f"{repo_id}/build/{name}/{FILE}")
    path, fence = registry.fetch(repo_id, commit, name), registry.fence(repo_id)
    if source.locks is not None:
        legacy_lock.check(source.locks, repo_id, name, path, fence)
    if metadata.digest is None:
        raise IntegrityError(
            f"{path / FILE} has no digest, so nothing can be verified",
            hint="it is an old build: build and publish it again",
        )
    verify_tree(path, metadata.digest, within=fence)
    return Fetched(
        repo_id=repo_id,
        commit=commit,
        refs=source.refs(depend, commit),
        variant=name,
        path=path,
        fence=fence,
        metadata=metadata,
    )


def copy(fetched: Fetched, target: DirectoryRegistry) -> bool:
    """Put a variant into a directory registry, under its commit; says whether it was not there.

    Raises:
        StorageError: the disk is full or not ours.
        IntegrityError: what arrived is not what was fetched.
    """
    final = target.fetch(fetched.repo_id, fetched.commit, fetched.variant)
    with target.writing(fetched.repo_id):
        new = not _is_whole(final, fetched, target)
        if new:
            with files.staging(final.parent) as staged:
                for path, file in tree_files(fetched.path, within=fetched.fence).items():
                    digest = files.sha256_file(file)
                    target.add_blob(fetched.repo_id, digest, file)
                    up = "../" * (path.count("/") + 4)
                    files.symlink(f"{up}blobs/{digest}", staged / "tree" / path)
                files.replace_tree(staged / "tree", final)
            if not _is_whole(final, fetched, target):
                raise IntegrityError(
                    f"{fetched.path} changed while it was copied", hint="download it again"
                )
        for name in fetched.refs:
            target.set_ref(fetched.repo_id, name, fetched.commit)
    return new


def _is_whole(path: Path, fetched: Fetched, target: DirectoryRegistry) -> bool:
    digest = fetched.metadata.digest
    try:
        same = (path / FILE).read_bytes() == (fetched.path / FILE).read_bytes()
        if digest is None or not same:
            return False
        verify_tree(path, digest, within=target.fence(fetched.repo_id))
        signed = {p.name for p in fetched.path.glob(f"{FILE}.*")}
    except (FileNotFoundError, NotADirectoryError, IntegrityError):
        return False
    return signed <= {p.name for p in path.glob(f"{FILE}.*")}


def size(fetched: Fetched) -> int:
    """Bytes of a variant's files."""
    found = tree_files(fetched.path, within=fetched.fence)
    return sum(file.stat().st_size for file in found.values())


def write_tar(tree: Path, out: Path) -> None:
    """Write a directory registry as a tar: the same bytes for the same kernels."""
    files.remove_tree(tree / ".locks")
    with files.atomic_stream(out) as stream:
        tree_archive.write_tar(tree, stream)

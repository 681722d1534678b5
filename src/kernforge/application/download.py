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
from kernforge.artifact.metadata import FILE
from kernforge.errors import IntegrityError, NoVariantError, RegistryError
from kernforge.loader.resolve import resolve, way_out
from kernforge.loader.search import fetch_variant, find_commit
from kernforge.registry import redirect
from kernforge.store import tree_archive
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from kernforge.artifact.metadata import KernelDepend, Metadata
    from kernforge.loader.host import Host
    from kernforge.loader.kernels_lock import KernelLocks
    from kernforge.loader.search import Search
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
        link_root: where its links may lead.
        metadata: its document.
    """

    repo_id: str
    commit: str
    refs: tuple[str, ...]
    variant: str
    path: Path
    link_root: Path
    metadata: Metadata


def locked(locks: KernelLocks) -> tuple[KernelDepend, ...]:
    """The kernels that an application itself asks for; all where its lock does not say which."""
    if locks.pins is None:
        return tuple(kernel.depend for kernel in locks.kernels)
    return tuple(pin.depend for pin in locks.pins.kernels if pin.asked is not None)


def fetch(
    search: Search,
    wanted: Iterable[KernelDepend],
    selection: Selection,
) -> Iterator[Fetched]:
    """Fetch and verify kernels with all that they depend on, each variant once.

    Args:
        search: where to fetch from; its locks, where it has any, say the commits to take.
        wanted: the kernels.
        selection: which variants of each.

    Raises:
        NoVariantError: a wanted variant is missing or none fits.
        RegistryError: the registry lacks a kernel, or it moved.
        TrustError: the trust policy refuses one.
        IntegrityError: a file is not what was built, or a document not what was locked.
    """
    pending = [(depend, _commit_of(search, depend)) for depend in wanted]
    seen: set[tuple[KernelDepend, str]] = set()
    while pending:
        depend, commit = pending.pop(0)
        if (depend, commit) in seen:
            continue
        seen.add((depend, commit))
        _refuse_moved(search.registry, depend.repo_id, commit)
        what = f"{depend.repo_id} at {commit}"
        for name in selection.of(what, search.registry.variants(depend.repo_id, commit)):
            fetched = _fetch(search, depend, commit, name)
            yield fetched
            below = fetched.metadata.kernel_depends
            pending += [(inner, _commit_of(search, inner)) for inner in below]


def _commit_of(search: Search, depend: KernelDepend) -> str:
    """The commit that a kernel is taken at."""
    if search.locks is not None:
        return search.locks.find(depend).commit
    return find_commit(search.registry, depend.repo_id, depend.version, depend.revision)


def _refs_of(registry: Registry, depend: KernelDepend, commit: str) -> tuple[str, ...]:
    """Names of the commit where it is copied to: its names here, and the one that was asked for."""
    names = registry.ref_names(depend.repo_id)
    refs = {name for name in names if registry.ref(depend.repo_id, name) == commit}
    asked = depend.revision if depend.version is None else f"v{depend.version}"
    if asked and not commit.startswith(asked):
        refs.add(asked)
    return tuple(sorted(refs))


def _refuse_moved(registry: Registry, repo_id: str, commit: str) -> None:
    status = registry.small_file(repo_id, commit, redirect.FILE)
    if status is not None:
        moved = redirect.parse(status, source=f"{repo_id}/{redirect.FILE}")
        raise RegistryError(
            f"kernel {repo_id} moved to {moved.repo_id} (revision {moved.revision})",
            hint=f"download {moved.repo_id}, and ask for that one",
        )


def _fetch(search: Search, depend: KernelDepend, commit: str, name: str) -> Fetched:
    fetched = fetch_variant(search, depend.repo_id, commit, name)
    digest = fetched.metadata.digest
    if digest is None:
        raise IntegrityError(
            f"{fetched.path / FILE} has no digest, so nothing can be verified",
            hint="it is an old build: build and publish it again",
        )
    verify_tree(fetched.path, digest, within=fetched.link_root)
    return Fetched(
        repo_id=depend.repo_id,
        commit=commit,
        refs=_refs_of(search.registry, depend, commit),
        variant=name,
        path=fetched.path,
        link_root=fetched.link_root,
        metadata=fetched.metadata,
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
                for path, file in tree_files(fetched.path, within=fetched.link_root).items():
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
        verify_tree(path, digest, within=target.link_root(fetched.repo_id))
        signed = {p.name for p in fetched.path.glob(f"{FILE}.*")}
    except (FileNotFoundError, NotADirectoryError, IntegrityError):
        return False
    return signed <= {p.name for p in path.glob(f"{FILE}.*")}


def size(fetched: Fetched) -> int:
    """Bytes of a variant's files."""
    found = tree_files(fetched.path, within=fetched.link_root)
    return sum(file.stat().st_size for file in found.values())


def write_tar(tree: Path, out: Path) -> None:
    """Write a directory registry as a tar: the same bytes for the same kernels."""
    files.remove_tree(tree / ".locks")
    with files.atomic_stream(out) as stream:
        tree_archive.write_tar(tree, stream)

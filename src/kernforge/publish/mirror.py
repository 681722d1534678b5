# SPDX-License-Identifier: Apache-2.0
"""Copy published versions from one registry to another, byte for byte.

Every file is compared with the hash that its registry lists and with the digest of its variant
before anything is written, and signatures are files as any other. Whether a kernel is trusted is
not asked here: the loader at the end asks its policy.

A version that the target has is compared with the source's and skipped, so that an interrupted
mirror is continued by the same command.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernforge.artifact.integrity import is_bytecode, verify_tree
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import (
    IntegrityError,
    NotPublishedError,
    RegistryError,
    StorageError,
    UsageError,
)
from kernforge.publish.api import destination, refuse_offline
from kernforge.publish.destination import Release
from kernforge.publish.version import Tree
from kernforge.registry.directory import Registry, refuse_own_branch
from kernforge.registry.listing import RemoteFile, folder_of
from kernforge.registry.names import SHA256, Request, majors, versions
from kernforge.registry.remote import RemoteRegistry
from kernforge.system import files
from kernforge.system.digest import git_blob
from kernforge.system.http import again


@dataclass(frozen=True, slots=True, kw_only=True)
class Mirrored:
    """A version or branch that the target has now.

    Attributes:
        reference: its tag, or a branch without versions.
        commit: its commit at the target.
        copied: whether it was copied now; else it was there.
        bytes: of all its files.
    """

    repo_id: str
    reference: str
    commit: str
    copied: bool
    files: int
    bytes: int


def kernels(source: Registry) -> tuple[tuple[str, ...], dict[str, str]]:
    """All kernels of a registry that can list them, and why others are left out, by name.

    A kernel without a version is what is left of a killed first publication.
    """
    listed: tuple[str, ...] | None = (
        again(source.transport.repo_ids)
        if isinstance(source, RemoteRegistry)
        else source.repo_ids()
    )
    if listed is None:
        raise UsageError(
            f"{source.url} does not list its kernels", hint="name them: owner/name or owner/name@1"
        )
    if not listed:
        raise NotPublishedError(f"{source.url} has no kernel", hint="check the path or the address")
    left_out = {}
    for repo_id in listed:
        try:
            if not source.refs(repo_id):
                left_out[repo_id] = "it has no version"
        except (StorageError, NotPublishedError) as error:
            left_out[repo_id] = error.message
    return tuple(repo_id for repo_id in listed if repo_id not in left_out), left_out


def mirror(
    source: Registry, target: Registry, repo_id: str, request: Request | None = None
) -> Iterator[Mirrored]:
    """Copy versions of a kernel in ascending order, so that branches follow.

    Major versions without tags, as kernel-builder publishes them, are copied by their branch. The
    commit keeps its name in directories and buckets, so that locks hold there; elsewhere it follows
    from the content.

    Args:
        request: the versions to copy, or one branch or tag; None copies all versions.

    Raises:
        NotPublishedError: the source has no such kernel or version.
        IntegrityError: a file of the source is not what it lists.
        RegistryError: the target has the version with other bytes.
    """
    refuse_offline(source)  # its cache has parts of versions
    refs = source.refs(repo_id)
    for reference in _references(source, repo_id, refs, request):
        yield _copy(source, target, repo_id, reference, refs[reference])


def _references(
    source: Registry, repo_id: str, refs: Mapping[str, str], request: Request | None
) -> list[str]:
    """The tags and branches to copy, tags from the oldest version on."""
    tags = versions(refs)
    tagged = {version[0] for version in tags}
    chosen = [*tags.values(), *(f"v{major}" for major in majors(refs) if major not in tagged)]
    chosen = chosen or ["main"]
    if request is not None and request.version is None:
        chosen = [request.revision or ""]
    elif request is not None and request.is_branch_of_major:
        chosen = [name for name in chosen if name.partition(".")[0] == f"v{request.version}"]
    elif request is not None:
        from packaging.specifiers import SpecifierSet  # noqa: PLC0415 - slow

        allowed = SpecifierSet(request.version or "")
        chosen = [tag for tag in tags.values() if tag[1:] in allowed]
    if chosen := [name for name in chosen if name in refs]:
        return chosen
    raise NotPublishedError(
        f"{source.url} has no {request or 'version'} of {repo_id}",
        hint=f"it has {', '.join(refs) or 'no such kernel'}",
    )


def _copy(
    source: Registry, target: Registry, repo_id: str, reference: str, commit: str
) -> Mirrored:
    """Copy one version or branch, or finish one whose copy was interrupted."""
    place, version = destination(target), next(iter(versions([reference])), None)
    listing = source.listing(repo_id, commit)
    listing = {path: file for path, file in listing.items() if not is_bytecode(path)}
    tree: Tree = {path: file.blob for path, file in listing.items()}
    content: dict[str, Path] = {}
    with place.writing(repo_id):
        published = place.versions(repo_id)
        there = published.get(version) if version else place.known.get(reference)
        same = there is not None and _is_same(tree, place.tree(repo_id, there, {}))
        if not same:  # or a hub's hashes are of another kind
            local = _verified(source, repo_id, commit, listing)
            tree, content = {path: local[path][0] for path in local}, dict(local.values())
            same = there is not None and _is_same(tree, place.tree(repo_id, there, content))
        if version and there and not same:
            raise RegistryError(
                f"{target.url} has {repo_id} {reference} with other bytes than {source.url}",
                hint="a version never changes: find out which one is right, or mirror elsewhere",
            )
        if not version and any(reference in {f"v{each[0]}", "main"} for each in published):
            raise RegistryError(
                f"{reference} of {repo_id} at {target.url} follows versions that {source.url} "
                "lacks",
                hint="mirror to a registry that publishes no versions of this kernel itself",
            )
        if not version and there and not same:
            refuse_own_branch(source, target, repo_id, reference, there)
        release = Release(
            branch=f"v{version[0]}" if version else reference,
            version=version,
            tree=tree,
            files=content,
            card=None,
            commit=commit,
        )
        if version or not same:
            there, _ = place.write(repo_id, release)
    return Mirrored(
        repo_id=repo_id,
        reference=reference,
        commit=there or "",
        copied=not same,
        files=len(listing),
        bytes=sum(file.size for file in listing.values()),
    )


def _is_same(ours: Tree, theirs: Tree) -> bool:
    """Whether a commit has the files of another; a hub adds files of its own at the top."""
    own = {path for path in theirs.keys() - ours.keys() if "/" not in path}
    return ours == {path: digest for path, digest in theirs.items() if path not in own}


def _verified(
    source: Registry, repo_id: str, commit: str, listing: Mapping[str, RemoteFile]
) -> dict[str, tuple[str, Path]]:
    """The hex SHA-256 and the local path of each file, compared with all hashes that there are."""
    root = source.link_root(repo_id)
    for folder in sorted({folder_of(path) for path in listing} - {""}):
        source.folder(repo_id, commit, folder)  # several files at once
    local: dict[str, tuple[str, Path]] = {}
    for path, file in listing.items():
        place = source.file(repo_id, commit, path)
        if place is None:
            raise _tampered(source, f"{path} of {repo_id} is not one of its files")
        digest = files.sha256_file(place)
        for blob in {file.blob, place.readlink().name if place.is_symlink() else file.blob}:
            if blob != (digest if SHA256.fullmatch(blob) else git_blob(place)):
                raise _tampered(source, f"{path} of {repo_id} at {commit} is not what it lists")
        local[path] = digest, place
    for variant in source.variants(repo_id, commit):
        document = source.small_file(repo_id, commit, f"build/{variant}/{FILE}")
        expected = Metadata.from_json(document).digest if document else None
        if expected is not None:
            verify_tree(source.fetch(repo_id, commit, variant), expected, within=root)
    return local


def _tampered(source: Registry, problem: str) -> IntegrityError:
    return IntegrityError(
        f"{source.url}: {problem}", hint="this version was not copied: report it to its operator"
    )

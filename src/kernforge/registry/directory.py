# SPDX-License-Identifier: Apache-2.0
"""A registry in a directory that is laid out as the cache of ``huggingface_hub``.

The hub's client loads from it with ``KERNELS_CACHE`` pointed at it, and this loader from a cache
that the hub's client filled::

    kernels--<owner>--<name>/
        blobs/<sha256>                     every file once
        snapshots/<commit>/build/<variant>/<file> -> ../../../../blobs/<sha256>
        snapshots/<commit>/source/<file>   the sources of the variants, if published
        refs/v1, refs/v1.2.3, refs/main    the name of a commit each
        refs.json, listings, packs         for readers behind a web server: registry.listing

A commit never changes; a reference changes by one atomic write; nothing is ever removed. Writers
exclude each other by a lock that also works on network shares (a whole-file lock, which NFS takes
to its server); readers need none. Only exclusive creation, rename and that lock are relied on.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge.artifact.integrity import (
    UNHASHED,
    read_file,
    readable,
    refuse_link_out,
    tree_files,
)
from kernforge.artifact.metadata import FILE, Metadata
from kernforge.errors import IntegrityError, NetworkError, RegistryError
from kernforge.registry.names import (
    COMMIT,
    LONGEST_REF,
    SHA256,
    check_revision,
    directory_name,
    is_ref,
    repo_ids,
)
from kernforge.system import files
from kernforge.system.digest import git_blob, key, sha256

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.registry.listing import RemoteFile


_MODIFIED = "the copy was modified: delete it and download again; no kernel code ran"


class Registry:
    """A registry in a directory, or the cache of a server.

    Every method may raise ``RegistryError`` or ``NetworkError``. A missing kernel, commit or file
    is None or an empty tuple.

    Args:
        url: the registry's URL; that of the directory by default.
        offline_server: address of the server whose cache this is; it is never contacted.
    """

    def __init__(self, root: Path, url: str = "", offline_server: str = "") -> None:
        self.root = root
        self.url = url or root.as_uri()
        self.offline_server = offline_server
        # Plain strings: on the way to a kernel that is loaded, a Path is most of the time.
        self._root = os.fspath(root)

    @property
    def members(self) -> tuple[Registry, ...]:
        """The registry itself: the registries of a chain have several."""
        return (self,)

    def member(self, repo_id: str) -> Registry:  # noqa: ARG002 - the same for every kernel
        """The registry itself."""
        return self

    def offline(self) -> Registry:
        """The same registry without a network."""
        return self

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels in the directory, sorted."""
        return repo_ids(_directories(self.root))

    def link_root(self, repo_id: str) -> Path:
        """The directory of a kernel: no link of its files leads out of it."""
        return self.root / directory_name(repo_id)

    def snapshot(self, repo_id: str, commit: str) -> Path:
        """The directory of a commit."""
        return self.link_root(repo_id) / "snapshots" / commit

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit of a branch or tag."""
        return self._written_ref(repo_id, name) or self._unnamed(repo_id).get(name)

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name."""
        root, found = self._inside(repo_id, "refs"), self._unnamed(repo_id)
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            for name in tree_files(root, within=self.link_root(repo_id)):
                if commit := self._written_ref(repo_id, name):
                    found[name] = commit
        return dict(sorted(found.items()))

    def _inside(self, repo_id: str, *parts: str) -> Path:
        """A path of a kernel, which no link may lead out of the kernel's directory."""
        path = (root := self.link_root(repo_id)).joinpath(*parts)
        refuse_link_out(path, root)
        return path

    def _written_ref(self, repo_id: str, name: str) -> str | None:
        if not is_ref(name):
            return None
        root = f"{self._root}/{directory_name(repo_id)}"
        path = f"{root}/refs/{name}"
        try:
            commit = read_file(path, within=root)[:LONGEST_REF].decode(errors="replace").strip()
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        if not COMMIT.fullmatch(commit):
            raise RegistryError(
                f"{path} holds {commit!r}, which is not a commit",
                hint="publish the kernel again, or remove that file of a download",
            )
        return commit

    def _unnamed(self, repo_id: str) -> dict[str, str]:
        """Branches by the versions in the metadata of builds, in the cache of an offline server.

        ``kernels`` downloads a version by its commit and leaves no reference. Of several commits of
        a version, the latest download counts.
        """
        commits = self.commits(repo_id) if self.offline_server else ()
        branches = {}
        for commit in sorted(commits, key=lambda c: self.snapshot(repo_id, c).stat().st_mtime_ns):
            for variant in self.variants(repo_id, commit):
                with contextlib.suppress(RegistryError, IntegrityError):
                    document = self.metadata(repo_id, commit, variant)
                    branches[f"v{Metadata.from_json(document).version}"] = commit
        return branches

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """The known commits, sorted: of a server, those with a reference or in the cache."""
        names = _directories(self._inside(repo_id, "snapshots"))
        return tuple(name for name in names if COMMIT.fullmatch(name))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether a full commit exists."""
        return bool(COMMIT.fullmatch(commit)) and self.snapshot(repo_id, commit).is_dir()

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        return _directories(self._inside(repo_id, "snapshots", commit, "build"))

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit; None if the commit has no such file.

        An unreadable file is an error: a signature behind a broken network is not a missing one.
        """
        try:
            return read_checked(self.snapshot(repo_id, commit) / path, self.link_root(repo_id))
        except FileNotFoundError:
            return None

    def listing(self, repo_id: str, commit: str) -> Mapping[str, RemoteFile]:
        """All files of a commit by path relative to the snapshot, sorted.

        Bytecode is left out: Python writes it there when another client imports the kernel. So
        is what a killed writer left.
        """
        from kernforge.registry.listing import RemoteFile  # noqa: PLC0415 - a load needs none

        root, found = self.snapshot(repo_id, commit), dict[str, RemoteFile]()
        if not root.is_dir():
            return found
        within = self.link_root(repo_id)
        for name, path in tree_files(root, within=within, without="tmp-kernforge-").items():
            # A link to a blob of this registry has the hash as its name.
            blob = path.readlink().name if path.is_symlink() else ""
            if not SHA256.fullmatch(blob):
                blob = files.sha256_file(path)
            found[name] = RemoteFile(size=path.stat().st_size, blob=blob)
        return found

    def tree(self, repo_id: str, commit: str) -> dict[str, str]:
        """The hash of each file of a commit, by path: hex SHA-256, or git's of a file on a hub."""
        return {path: file.blob for path, file in self.listing(repo_id, commit).items()}

    def file(self, repo_id: str, commit: str, path: str) -> Path | None:
        """A file of a commit on this machine, complete; None if the commit has no such file."""
        file = self._inside(repo_id, "snapshots", commit, path)
        return file if file.is_file() else None

    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """A local directory with a folder of a commit, complete and not yet verified; else None."""
        folder = self._inside(repo_id, "snapshots", commit, path)
        return folder if folder.is_dir() else None

    def metadata(self, repo_id: str, commit: str, variant: str) -> bytes:
        """The bytes of a variant's ``metadata.json``; a RegistryError if it is missing."""
        document = self.small_file(repo_id, commit, f"build/{variant}/{FILE}")
        if document is None:
            raise RegistryError(
                f"build/{variant}/{FILE} of {repo_id} at {commit} is missing at {self.url}",
                hint="it is an old build, or not a build: build and publish the kernel again",
            )
        return document

    def fetch(self, repo_id: str, commit: str, variant: str) -> Path:
        """A local directory of a variant's files, unverified; a RegistryError if it is missing."""
        folder = self.folder(repo_id, commit, f"build/{variant}")
        if folder is None:
            raise RegistryError(
                f"build/{variant} of {repo_id} at {commit} is missing at {self.url}",
                hint="`kernforge info` lists its variants",
            )
        return folder

    def is_trusted_publisher(self, owner: str) -> bool | None:
        """Whether the registry marks an owner as a trusted publisher; None if it has no such mark.

        Raises:
            NetworkError: only the server knows, and it cannot be reached.
        """
        if self.offline_server:
            raise NetworkError(
                f"{self.offline_server} is offline, so it cannot say whether {owner} is a trusted "
                "publisher: HF_HUB_OFFLINE is set",
                hint="allow the kernel by name, or load it once while the hub can be reached",
            )
        return None

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Hold the write lock of a kernel, and remove the leftovers of killed writers."""
        repo = self.link_root(repo_id)
        with files.locked(self.root / ".locks" / f"{repo.name}.lock"):
            for place in ("", "blobs", "snapshots", "refs", "listings", "packs"):
                files.sweep(repo / place)
            yield


class Chain:
    """Several registries: the first that has a kernel is used for it alone.

    The last one is used for kernels that none has, so that its errors say what is missing.
    """

    def __init__(self, members: tuple[Registry, ...]) -> None:
        self.members = members
        self.url = ", then ".join(registry.url for registry in members)

    def member(self, repo_id: str) -> Registry:
        """The registry of a kernel."""
        *others, last = self.members
        return next((each for each in others if each.commits(repo_id)), last)

    def offline(self) -> Chain:
        """The same registries without a network."""
        return Chain(tuple(registry.offline() for registry in self.members))


Registries: TypeAlias = Registry | Chain
"""One registry, or several in an order."""


def read_checked(path: Path, within: Path, blob: str = "") -> bytes:
    """The bytes of a small file that no digest may cover.

    Args:
        within: directory that symbolic links must not leave.
        blob: their hash, SHA-256 or git's; by default the name of the blob that the file links to.
    """
    data = read_file(path, within=within)
    if not blob and path.is_symlink():
        blob = os.path.basename(os.readlink(path))  # noqa: PTH115, PTH119
    if blob and blob not in {sha256(data), git_blob(data)}:
        raise IntegrityError(f"{path} has other bytes than the blob {blob}", hint=_MODIFIED)
    if not blob and path.name in UNHASHED and any(p.is_symlink() for p in path.parent.iterdir()):
        raise IntegrityError(
            f"{path} is not a link to a blob, as other files of its directory are", hint=_MODIFIED
        )
    return data


def _directories(directory: Path) -> tuple[str, ...]:
    """The finished directories in a directory, sorted; none if it does not exist."""
    try:
        with readable(directory), os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir()]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(name for name in names if not name.startswith("tmp-")))


class DirectoryRegistry(Registry):
    """A registry in a directory, for reading and writing; the module has the layout."""

    def add_blob(self, repo_id: str, sha256: str, content: Path | bytes) -> None:
        """Store a file's content, if it is missing or damaged.

        Raises:
            RegistryError: the content has another SHA-256.
        """
        blob = self.link_root(repo_id) / "blobs" / sha256
        if blob.is_file() and files.sha256_file(blob) == sha256:
            return
        with files.staging(blob.parent) as staged:
            copy = staged / sha256
            if isinstance(content, bytes):
                files.write_new(copy, content)
            else:
                files.copy_file(content, copy)
            if files.sha256_file(copy) != sha256:
                source = content if isinstance(content, Path) else "a file"
                raise RegistryError(
                    f"{source} changed while it was published",
                    hint="publish again when nothing writes to it",
                )
            files.flush(copy)
            files.publish_tree(copy, blob)

    def add_snapshot(self, repo_id: str, tree: Mapping[str, str], name: str | None = None) -> str:
        """Make a commit of stored blobs; returns its name.

        Args:
            tree: as ``tree`` returns it.
            name: the commit's name in another registry; None takes one that follows from the tree.

        Raises:
            IntegrityError: a commit of that name has another tree.
        """
        commit = name or key("registry-commit", tree=tree)[:40]
        final = self.snapshot(repo_id, commit)
        if final.is_dir():
            if self.tree(repo_id, commit) == dict(tree):
                return commit
            if name:
                refuse_other_files(self, repo_id, commit, tree)
        with files.staging(final.parent) as staged:
            for path, sha256 in tree.items():
                link_to_blob(staged / path, path, sha256)
            files.replace_tree(staged, final)
        return commit

    def set_ref(self, repo_id: str, name: str, commit: str) -> bool:
        """Make a branch or tag name a commit; returns whether that is a change.

        Raises:
            RequestError: it is not a name of a branch or tag.
        """
        check_revision(name)
        if self.ref(repo_id, name) == commit:
            return False
        # No last newline: the hub's client reads the whole file as the commit.
        files.write_atomic(self.link_root(repo_id) / "refs" / name, commit)
        return True

    def write_index(self, repo_id: str, commit: str) -> None:
        """Write what a web server needs to show a commit: see ``registry.listing``.

        So is every other commit with a reference that has no listing yet: an older kernforge wrote
        none. The references are last: a reader of them finds the rest.
        """
        from kernforge.registry import listing  # noqa: PLC0415 - a load needs none of it

        root, refs = self.link_root(repo_id), self.refs(repo_id)
        for each in {commit, *refs.values()}:
            document, snapshot = root / "listings" / f"{each}.json", self.snapshot(repo_id, each)
            # ``kernforge get`` adds variants to the copy of a commit.
            if snapshot.is_dir() and (each == commit or not document.is_file()):
                found = self.listing(repo_id, each)
                placed, packs = listing.pack(found, {path: snapshot / path for path in found})
                for digest, data in packs.items():
                    files.write_atomic(root / "packs" / digest, data)
                files.write_atomic(document, listing.write_listing(placed))
        files.write_atomic(root / listing.REFS, listing.write_refs(refs))


def link_to_blob(link: Path, path: str, blob: str) -> None:
    """Link a file, by its path in a commit, to its blob."""
    files.symlink(f"{'../' * (path.count('/') + 2)}blobs/{blob}", link)


def refuse_own_branch(
    source: Registry, target: Registry, repo_id: str, name: str, commit: str
) -> None:
    """Refuse to move a branch or tag of a copy that another registry than its source has written.

    Where commits get other names in the copy, one with the same files and sizes counts.

    Args:
        commit: of the branch at the target.
    """

    def sizes(registry: Registry, one: str) -> dict[str, int]:
        listed = registry.listing(repo_id, one)  # a hub adds files at the top
        return {path: file.size for path, file in listed.items() if "/" in path}

    if source.has_commit(repo_id, commit):
        return
    there = sizes(target, commit)
    if not any(sizes(source, each) == there for each in source.commits(repo_id)):
        raise RegistryError(
            f"{name} of {repo_id} at {target.url} is at {commit}, which {source.url} does not have",
            hint="another publisher wrote it: copy to another place, or delete that branch there",
        )


def refuse_other_files(
    registry: Registry, repo_id: str, commit: str, tree: Mapping[str, str]
) -> None:
    """Refuse to change a commit: a hostile source of a mirror would change another version."""
    if registry.tree(repo_id, commit) != dict(tree):
        raise IntegrityError(
            f"{registry.url} has {repo_id} at {commit} with other files",
            hint="`kernforge get` may have copied a part of it: mirror to another registry",
        )

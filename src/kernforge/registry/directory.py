# SPDX-License-Identifier: Apache-2.0
"""A registry in a directory: no server is needed, and the file system says who may write.

Its layout is that of the cache of ``huggingface_hub``, so that the hub's client loads from it with
``KERNELS_CACHE`` pointed at it, and this loader from a cache that the hub's client filled::

    kernels--<owner>--<name>/
        blobs/<sha256>                     every file once
        snapshots/<commit>/build/<variant>/<file> -> ../../../../blobs/<sha256>
        snapshots/<commit>/source/<file>   what the variants were built from, if it was published
        refs/v1, refs/v1.2.3, refs/main    the name of a commit each

A commit never changes; a reference changes by one atomic write; nothing is ever removed. Publishers
exclude each other by a lock that also works on network shares (a whole-file lock, which NFS takes
to its server); readers need none. Only exclusive creation, rename and that lock are relied on.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from kernforge.artifact.integrity import UNHASHED, is_bytecode
from kernforge.artifact.metadata import Metadata
from kernforge.errors import IntegrityError, NetworkError, RegistryError
from kernforge.registry.base import Registry
from kernforge.registry.names import COMMIT, SHA256, check_repo_id, check_revision, is_ref
from kernforge.system import files
from kernforge.system.digest import git_blob, key, sha256

PART = "part-"
"""Prefix of a blob that is not whole yet: the next download of it goes on there."""
_PARTS_LAST_S = 7 * 24 * 3600
# Of a wait for another process: a write takes less, a download more.
_SILENT_S = 2.0
_CHANGED = "the copy was modified: delete it and download again; no kernel code ran"
_LONGEST_REF = 200
_LARGEST = 64_000_000
_PARTS = 3  # of a repository's directory: what it is, owner, name


class DirectoryRegistry(Registry):
    """A registry in a directory; see the module for its layout."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = root.as_uri()
        # Plain strings: on the way to a kernel that is loaded, a Path is most of the time.
        self._root = os.fspath(root)

    def repo_ids(self) -> tuple[str, ...]:
        """The kernels that it holds, sorted."""
        names = (name.split("--") for name in _names(self.root, is_dir=True))
        return tuple(
            sorted(f"{n[1]}/{n[2]}" for n in names if n[0] == "kernels" and len(n) == _PARTS)
        )

    def link_root(self, repo_id: str) -> Path:
        """The directory of one kernel: links lead to its blobs."""
        return Path(self._repo(repo_id))

    def _repo(self, repo_id: str) -> str:
        return f"{self._root}/kernels--{check_repo_id(repo_id).replace('/', '--')}"

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names; None when there is none."""
        if not is_ref(name):
            return None
        path = f"{self._repo(repo_id)}/refs/{name}"
        try:
            commit = _read_ref(path)
        except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
            return None
        if not COMMIT.fullmatch(commit):
            raise RegistryError(
                f"{path} holds {commit!r}, which is not a commit",
                hint="publish the kernel again, or remove that file of what was downloaded",
            )
        return commit

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, sorted by name."""
        root = self.link_root(repo_id) / "refs"
        names = (path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())
        found = ((name, DirectoryRegistry.ref(self, repo_id, name)) for name in sorted(names))
        return {name: commit for name, commit in found if commit}

    def commits(self, repo_id: str) -> tuple[str, ...]:
        """All commits, sorted."""
        names = _names(self.link_root(repo_id) / "snapshots", is_dir=True)
        return tuple(name for name in names if COMMIT.fullmatch(name))

    def has_commit(self, repo_id: str, commit: str) -> bool:
        """Whether there is a commit of this whole name."""
        return bool(COMMIT.fullmatch(commit)) and self.snapshot(repo_id, commit).is_dir()

    def variants(self, repo_id: str, commit: str) -> tuple[str, ...]:
        """The names of a commit's variants, sorted."""
        return _names(self.snapshot(repo_id, commit) / "build", is_dir=True)

    def snapshot(self, repo_id: str, commit: str) -> Path:
        """The directory of a commit."""
        return self.link_root(repo_id) / "snapshots" / commit

    def small_file(self, repo_id: str, commit: str, path: str) -> bytes | None:
        """The bytes of a small file of a commit, by its path; None without."""
        try:
            return read_checked(self.snapshot(repo_id, commit) / path)
        except FileNotFoundError:
            return None

    def folder(self, repo_id: str, commit: str, path: str) -> Path | None:
        """The directory of a folder of a commit; None without."""
        folder = self.snapshot(repo_id, commit) / path
        return folder if folder.is_dir() else None

    @contextlib.contextmanager
    def writing(self, repo_id: str) -> Iterator[None]:
        """Hold the kernel's lock for writing; what a killed writer left is removed."""
        repo = self.link_root(repo_id)
        lock = self.root / ".locks" / f"{repo.name}.lock"
        with contextlib.ExitStack() as stack:
            if not stack.enter_context(files.locked(lock, wait_s=_SILENT_S)):
                import logging  # noqa: PLC0415 - slow, and rarely needed

                logging.getLogger("kernforge").warning(
                    "another process writes %s to %s: it is waited for", repo_id, self.root
                )
                stack.enter_context(files.locked(lock))
            for place in ("", "blobs", "snapshots", "refs", "listings"):
                files.sweep(repo / place)
            old = time.time() - _PARTS_LAST_S
            for leftover in repo.glob(f"blobs/{PART}*"):
                if leftover.lstat().st_mtime < old:
                    files.remove_tree(leftover)
            yield

    def tree(self, repo_id: str, commit: str) -> dict[str, str]:
        """Hex SHA-256 of each file of a commit, by its path relative to the snapshot.

        Bytecode is left out: Python writes it there when another client imports the kernel.
        """
        root = self.snapshot(repo_id, commit)
        tree = {}
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if not is_bytecode(name) and (path.is_symlink() or path.is_file()):
                tree[name] = _content_sha256(path)
        return dict(sorted(tree.items()))

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
                raise RegistryError(
                    f"{content if isinstance(content, Path) else 'a file'} changed while it was "
                    "published",
                    hint="publish again when nothing writes to it",
                )
            files.flush(copy)
            files.publish_tree(copy, blob)

    def add_snapshot(self, repo_id: str, tree: Mapping[str, str]) -> tuple[str, bool]:
        """Make a commit of stored blobs.

        Args:
            repo_id: ``owner/name``.
            tree: as ``tree`` returns it.

        Returns:
            The commit, which follows from the tree alone, and whether it is new.
        """
        commit = key("registry-commit", tree=tree)[:40]
        final = self.snapshot(repo_id, commit)
        if final.is_dir() and self.tree(repo_id, commit) == dict(tree):
            return commit, False
        with files.staging(final.parent) as staged:
            for path, sha256 in tree.items():
                up = "../" * (path.count("/") + 2)
                files.symlink(f"{up}blobs/{sha256}", staged / path)
            files.replace_tree(staged, final)
        return commit, True

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


class CachedRegistry(DirectoryRegistry):
    """What was downloaded from a server, which is not asked.

    Args:
        root: the cache, which other clients of the server may have filled.
        url: the URL of the registry on the server.
        address: the server's.
    """

    def __init__(self, root: Path, url: str, address: str) -> None:
        super().__init__(root)
        self.url, self.unasked = url, address

    def ref(self, repo_id: str, name: str) -> str | None:
        """The commit that a branch or tag names, or that the builds in the cache say of it."""
        return super().ref(repo_id, name) or self._unnamed(repo_id).get(name)

    def refs(self, repo_id: str) -> Mapping[str, str]:
        """The commit of each branch and tag, and what the builds in the cache say of themselves."""
        return dict(sorted({**self._unnamed(repo_id), **super().refs(repo_id)}.items()))

    def _unnamed(self, repo_id: str) -> dict[str, str]:
        """Branches by what builds say, for commits that no reference in the cache names.

        ``kernels`` fetches a version by its commit and leaves no reference. Of several commits of a
        version, the one that was fetched last counts.
        """
        named = set(super().refs(repo_id).values())
        commits = [commit for commit in self.commits(repo_id) if commit not in named]
        times = {c: self.snapshot(repo_id, c).stat().st_mtime_ns for c in commits}
        found = {}
        for commit in sorted(commits, key=times.__getitem__):
            for variant in self.variants(repo_id, commit):
                with contextlib.suppress(RegistryError, IntegrityError):
                    document = self.metadata(repo_id, commit, variant)
                    found[f"v{Metadata.from_json(document).version}"] = commit
                    break
        return found

    def is_trusted_publisher(self, owner: str) -> bool | None:
        """Only the server knows.

        Raises:
            NetworkError: always.
        """
        raise NetworkError(
            f"{self.unasked} is not asked, so it cannot say whether {owner} is a trusted "
            "publisher: HF_HUB_OFFLINE is set",
            hint="allow the kernel by name, or load it once while the hub can be reached",
        )


def _read_ref(path: str) -> str:
    """The commit in a file that another process may replace meanwhile."""
    for last in (False, False, True):
        try:
            return read_small(path)[:_LONGEST_REF].decode(errors="replace").strip()
        except OSError as error:
            # On a network share the name may lead to the file that another machine just replaced.
            if error.errno != errno.ESTALE or last:
                raise
    raise AssertionError("the last attempt returns or raises")


def _at_once(path: str, flags: int) -> int:
    """Open a file without the wait for the other end of a pipe."""
    return os.open(path, flags | os.O_NONBLOCK)


def read_small(path: Path | str) -> bytes:
    """The bytes of a document: not those of a pipe, a device or a socket, which may have no end.

    Raises:
        IntegrityError: it is one, or a file that is larger than any document.
    """
    with open(path, "rb", buffering=0, opener=_at_once) as stream:
        state = os.fstat(stream.fileno())
        if not stat.S_ISREG(state.st_mode) or state.st_size > _LARGEST:
            raise IntegrityError(
                f"{path} is not a file of at most {_LARGEST:,} bytes",
                hint="remove it, and publish or download the kernel again",
            )
        return stream.readall()


def read_checked(path: Path) -> bytes:
    """The bytes of a small file, which no digest may cover; of a link, what its blob's name says.

    Raises:
        IntegrityError: the blob has other bytes, or the file or link took the place of a link to a
            blob.
    """
    data = read_small(path)
    if path.is_symlink():
        refuse_other_bytes(path, os.path.basename(os.readlink(path)), data)  # noqa: PTH115, PTH119
    elif path.name in UNHASHED and any(other.is_symlink() for other in path.parent.iterdir()):
        raise IntegrityError(
            f"{path} is not a link to a blob, as other files of its directory are", hint=_CHANGED
        )
    return data


def refuse_other_bytes(path: Path | str, blob: str, data: bytes) -> None:
    """Refuse bytes that are not those that a blob is named by: SHA-256, or git's hash.

    Raises:
        IntegrityError: they are others, or the name is not a hash.
    """
    if SHA256.fullmatch(blob):
        found = sha256(data)
    elif COMMIT.fullmatch(blob):
        found = git_blob(data)
    else:
        raise IntegrityError(f"{path} leads to {blob!r}, which is not a blob", hint=_CHANGED)
    if found != blob:
        raise IntegrityError(
            f"{path} is not what its commit has: the blob {blob} has other bytes", hint=_CHANGED
        )


def _content_sha256(path: Path) -> str:
    """Hex SHA-256 of a file; a link to a blob of this registry has it as its name."""
    name = os.path.basename(os.readlink(path)) if path.is_symlink() else ""  # noqa: PTH115, PTH119
    return name if SHA256.fullmatch(name) else files.sha256_file(path)


def _names(directory: Path, *, is_dir: bool) -> tuple[str, ...]:
    """The finished entries of one kind in a directory, sorted; nothing where there is none."""
    try:
        with os.scandir(directory) as entries:
            names = [entry.name for entry in entries if entry.is_dir() == is_dir]
    except (FileNotFoundError, NotADirectoryError):
        return ()
    return tuple(sorted(name for name in names if not name.startswith("tmp-")))

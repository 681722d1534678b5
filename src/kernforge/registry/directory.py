# SPDX-License-Identifier: Apache-2.0
"""The writing of a registry in a directory: blobs, commits, references.

No server is needed, and the file system says who may write.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kernforge.artifact.integrity import is_bytecode
from kernforge.errors import RegistryError
from kernforge.registry.base import Registry
from kernforge.registry.names import SHA256, check_revision
from kernforge.system import files
from kernforge.system.digest import key


class DirectoryRegistry(Registry):
    """A registry in a directory, for reading and writing; ``registry.base`` has the layout."""

    def tree(self, repo_id: str, commit: str) -> dict[str, str]:
        """Hex SHA-256 of each file of a commit, by its path relative to the snapshot.

        Bytecode is left out: Python writes it there when another client imports the kernel.
        """
        root = self.snapshot(repo_id, commit)
        tree = {}
        for path in root.rglob("*"):
            name = path.relative_to(root).as_posix()
            if not is_bytecode(name) and (path.is_symlink() or path.is_file()):
                # A link to a blob of this registry has the hash as its name.
                blob = path.readlink().name if path.is_symlink() else ""
                tree[name] = blob if SHA256.fullmatch(blob) else files.sha256_file(path)
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
                link_to_blob(staged / path, path, sha256)
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


def link_to_blob(link: Path, path: str, blob: str) -> None:
    """Link a file, by its path in a commit, to its blob."""
    files.symlink(f"{'../' * (path.count('/') + 2)}blobs/{blob}", link)

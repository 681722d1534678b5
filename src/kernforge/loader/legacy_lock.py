# SPDX-License-Identifier: Apache-2.0
"""Compare a variant with its hash in a lock of ``kernels`` 0.16 and before.

The hash is SHA-256 over the variant's files, sorted by the bytes of their paths: for each its path,
then git's SHA-1 of it or, for a file that the hub keeps as a large one, its SHA-256, as raw bytes
(``git_lfs_concat``). The name of a file's blob in a hub's cache says which of the two counts. In a
directory registry all blobs are named by SHA-256; there, files that end in ``.so`` are taken for the
large ones, as the hub's own builder marks them.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kernforge.artifact.integrity import tree_files
from kernforge.errors import IntegrityError
from kernforge.system.digest import git_blob, sha256
from kernforge.system.files import sha256_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.loader.kernels_lock import KernelLocks

_GIT = 40
_COVERED = "torch"  # other variants were never locked


def check(locks: KernelLocks, repo_id: str, variant: str, path: Path, link_root: Path) -> None:
    """Compare a variant's files with an old lock; nothing is checked for a lock of today.

    Raises:
        IntegrityError: the variant did not exist when it was locked, or had other files.
    """
    hashes = locks.of(repo_id).hashes if locks.old else {}
    if not hashes or not variant.startswith(_COVERED):
        return
    hint = f"nothing of it was run; lock it again: kernforge lock --upgrade {repo_id}"
    if variant not in hashes:
        raise IntegrityError(
            f"{variant} of {repo_id} did not exist when {locks.source} was written", hint=hint
        )
    files = tree_files(path, within=link_root)
    if hashes[variant] not in possible_hashes(files):
        raise IntegrityError(
            f"{path} is not what {locks.source} locked: its files have another hash", hint=hint
        )


def possible_hashes(files: Mapping[str, Path]) -> set[str]:
    """The possible hashes: one where the names of blobs say which files are large."""
    in_git = {
        path
        for path, file in files.items()
        if len(os.path.realpath(file).rpartition("/")[2]) == _GIT
    }
    hashes = {_hash(files, lambda path: path in in_git)}
    if not in_git:
        hashes.add(_hash(files, lambda path: not path.endswith(".so")))
    return hashes


def _hash(files: Mapping[str, Path], is_git: Callable[[str], bool]) -> str:
    parts = b"".join(
        path.encode() + bytes.fromhex(git_blob(file) if is_git(path) else sha256_file(file))
        for path, file in sorted(files.items(), key=lambda item: item[0].encode())
    )
    return f"sha256-{sha256(parts)}"

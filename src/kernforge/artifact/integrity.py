# SPDX-License-Identifier: Apache-2.0
"""Hash the files of a variant, and hold them against what its metadata promises.

The rules are the hub's: every file counts except ``metadata.json`` and its signature at the top,
``*.pyc`` and whatever lies in a ``__pycache__``; a file reached through a symbolic link counts
with its content. Beyond them, what the hub's rules would not see is refused: directories behind a
link, and links that lead out of where the variant is kept.
"""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import FILE, SIGNATURE, Algorithm, Digest
from kernforge.errors import IntegrityError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_LARGE_BYTES = 1 << 20  # half a millisecond of hashing, several times what a thread costs
_MOST_THREADS = 8

UNHASHED = frozenset({FILE, SIGNATURE})
"""What a digest leaves out at the top of a variant: it stands in the first, the second signs it."""


def is_bytecode(path: str) -> bool:
    """Whether a path relative to a variant is Python bytecode, which is never part of a build."""
    return path.endswith(".pyc") or "__pycache__" in path.split("/")


def tree_files(root: Path, *, within: Path | None = None) -> dict[str, Path]:
    """The files of a variant, bytecode left out: relative path with ``/`` to where it lies.

    Args:
        root: the variant's directory.
        within: where a symbolic link may lead; the default is the variant itself.

    Raises:
        IntegrityError: something is neither a file nor a directory, or a link leads elsewhere.
    """
    allowed = os.path.realpath(within or root) + os.sep
    found: dict[str, Path] = {}
    pending = [("", os.fspath(root))]
    while pending:
        prefix, directory = pending.pop()
        with os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if is_bytecode(path):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{path}/", entry.path))
                else:
                    _refuse_strays(entry, path, root, allowed)
                    found[path] = Path(entry.path)
    return dict(sorted(found.items()))


def _refuse_strays(entry: os.DirEntry[str], path: str, root: Path, allowed: str) -> None:
    if not entry.is_file():
        kind = "a link to no file" if entry.is_symlink() else "no ordinary file"
        raise IntegrityError(f"{path} in {root} is {kind}", hint=_HINT)
    if entry.is_symlink() and not os.path.realpath(entry.path).startswith(allowed):
        raise IntegrityError(f"{path} in {root} is a link that leads out of {allowed}", hint=_HINT)


def digest_tree(
    root: Path, *, algorithm: Algorithm = "sha256", within: Path | None = None
) -> Digest:
    """Hash a variant's files.

    Args:
        root: the variant's directory.
        algorithm: ``sha256`` is what builds carry.
        within: where a symbolic link may lead; the default is the variant itself.

    Raises:
        IntegrityError: see ``tree_files``.
    """
    files = tree_files(root, within=within)
    for name in UNHASHED:
        files.pop(name, None)
    return Digest(
        algorithm=algorithm,
        files=dict(zip(files, _hashes(list(files.values()), algorithm), strict=True)),
    )


def _hashes(files: Sequence[Path], algorithm: Algorithm) -> Iterable[str]:
    """The hash of each file: large ones side by side, since hashing lets other threads run."""
    large = sum(os.path.getsize(file) >= _LARGE_BYTES for file in files)  # noqa: PTH202 - often
    if large < 2:  # noqa: PLR2004 - one has nothing beside it
        return [_hash(file, algorithm) for file in files]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow, and rarely needed

    with ThreadPoolExecutor(min(large, os.cpu_count() or 1, _MOST_THREADS)) as pool:
        return list(pool.map(lambda file: _hash(file, algorithm), files))


def _hash(file: Path, algorithm: Algorithm) -> str:
    with file.open("rb") as stream:
        return base64.b64encode(hashlib.file_digest(stream, algorithm).digest()).decode()


def verify_tree(root: Path, digest: Digest, *, within: Path | None = None) -> None:
    """Hold a variant's files against a digest.

    Args:
        root: the variant's directory.
        digest: what its metadata promises.
        within: where a symbolic link may lead; the default is the variant itself.

    Raises:
        IntegrityError: files are missing, changed or extra; the message names every one.
    """
    found = digest_tree(root, algorithm=digest.algorithm, within=within).files
    deviations = [
        f"{_deviation(path, digest, found)}: {path}"
        for path in sorted({*digest.files, *found})
        if digest.files.get(path) != found.get(path)
    ]
    if deviations:
        listing = "\n  ".join(deviations)
        raise IntegrityError(f"{root} is not what was built:\n  {listing}", hint=_HINT)


_HINT = "build the kernel again, or remove this copy and fetch it again; nothing of it was run"


def _deviation(path: str, digest: Digest, found: Mapping[str, str]) -> str:
    if path not in digest.files:
        return "extra"
    return "changed" if path in found else "missing"

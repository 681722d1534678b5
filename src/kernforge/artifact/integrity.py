# SPDX-License-Identifier: Apache-2.0
"""Read and hash the files of a variant or a registry, which are untrusted.

Everything that reads such a file opens it here: a test of the source holds that.

The rules are the hub's: every file counts except ``metadata.json`` and its signature at the top,
``*.pyc`` and the files of a ``__pycache__``; a symbolic link to a file counts with the file's
content. Two things that the hub's rules do not cover are refused: links to directories, and links
to files outside the directory where the variant is kept.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kernforge.artifact.metadata import FILE, SIGNATURE, Algorithm, Digest, Metadata
from kernforge.errors import IntegrityError, KernforgeError, StorageError, UsageError

_LARGE_BYTES = 1 << 20  # half a millisecond of hashing, several times the cost of a thread
_MOST_THREADS = 8

UNHASHED = frozenset({FILE, SIGNATURE})
"""Files at the top of a variant that are not in its digest: one has the digest, one signs it."""


DOCUMENT = 64_000_000
"""Bytes of the largest document, and of the largest text of a package."""


def is_bytecode(path: str) -> bool:
    """Whether a path relative to a variant is Python bytecode, which is never part of a build."""
    return path.endswith(".pyc") or "__pycache__" in path.split("/")


@contextlib.contextmanager
def readable(path: Path | str) -> Iterator[None]:
    """Turn the errors of a file or directory of another user or of a broken disk into one of ours.

    A missing file stays a ``FileNotFoundError``; so do the errors of the wrong kind.
    """
    try:
        yield
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise
    except OSError as error:
        raise StorageError(
            f"{path} cannot be read: {error.strerror}", hint="check its owner and its permissions"
        ) from error


def refuse_link_out(path: Path | str, root: Path | str) -> None:
    """Refuse a path that a symbolic link leads out of a directory."""
    real = os.path.realpath(root)
    if not f"{os.path.realpath(path)}/".startswith(f"{real.rstrip('/')}/"):
        raise IntegrityError(f"{path} is a link that leaves {real}", hint=_HINT)


def read_file(path: Path | str, *, within: Path | str, most: int = DOCUMENT) -> bytes:
    """The bytes of a file; refuses pipes, devices and sockets, which may have no end.

    Args:
        within: directory that symbolic links must not leave.
        most: bytes that the file may have.
    """

    def open_now(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NONBLOCK)  # without waiting for a pipe's other end

    with readable(path):
        refuse_link_out(path, within)
        with open(path, "rb", buffering=0, opener=open_now) as stream:
            state = os.fstat(stream.fileno())
            if not stat.S_ISREG(state.st_mode) or state.st_size > most:
                raise IntegrityError(f"{path} is not a file of at most {most:,} bytes", hint=_HINT)
            return stream.readall()


def tree_files(
    root: Path, *, within: Path | None = None, without: str | None = None
) -> dict[str, Path]:
    """The files of a variant without bytecode: path on the disk by relative path with ``/``.

    Args:
        within: directory that symbolic links must not leave; the default is the variant.
        without: prefix of the names of entries to leave out, such as a killed writer's.
    """
    refuse_link_out(root, within or root)
    allowed = os.path.realpath(within or root) + os.sep
    files: dict[str, Path] = {}
    pending = [("", os.fspath(root))]
    while pending:
        prefix, directory = pending.pop()
        with readable(directory), os.scandir(directory) as entries:
            for entry in entries:
                path = f"{prefix}{entry.name}"
                if is_bytecode(path) or (without and entry.name.startswith(without)):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    pending.append((f"{path}/", entry.path))
                else:
                    _check_entry(entry, path, root, allowed)
                    files[path] = Path(entry.path)
    return dict(sorted(files.items()))


def _check_entry(entry: os.DirEntry[str], path: str, root: Path, allowed: str) -> None:
    if not entry.is_file():
        kind = "a link that does not lead to a file" if entry.is_symlink() else "not a regular file"
        raise IntegrityError(f"{path} in {root} is {kind}", hint=_HINT)
    if entry.is_symlink() and not os.path.realpath(entry.path).startswith(allowed):
        raise IntegrityError(f"{path} in {root} is a link that leaves {allowed}", hint=_HINT)


def digest_tree(
    root: Path, *, algorithm: Algorithm = "sha256", within: Path | None = None
) -> Digest:
    """Hash a variant's files; the arguments and errors are those of ``tree_files``."""
    files = tree_files(root, within=within)
    for name in UNHASHED:
        files.pop(name, None)
    hashes = zip(files, _hashes(files, algorithm), strict=True)
    return Digest(algorithm=algorithm, files=dict(hashes))


def _hashes(files: Mapping[str, Path], algorithm: Algorithm) -> Iterable[str]:
    """The hash of each file; large files are hashed in parallel, because hashing frees the GIL."""

    def one(file: Path) -> str:
        with readable(file), file.open("rb") as stream:
            return base64.b64encode(hashlib.file_digest(stream, algorithm).digest()).decode()

    large = sum(os.path.getsize(f) >= _LARGE_BYTES for f in files.values())  # noqa: PTH202 - often
    if large < 2:  # noqa: PLR2004 - threads need at least two files
        return [one(file) for file in files.values()]
    from concurrent.futures import ThreadPoolExecutor  # noqa: PLC0415 - slow, and rarely needed

    with ThreadPoolExecutor(min(large, os.cpu_count() or 1, _MOST_THREADS)) as pool:
        return list(pool.map(one, files.values()))


def hash_bytes(data: bytes, algorithm: Algorithm) -> str:
    """The hash of a file's content, as a digest has it."""
    return base64.b64encode(hashlib.new(algorithm, data).digest()).decode()


def verify_tree(root: Path, digest: Digest, *, within: Path | None = None) -> None:
    """Compare a variant's files with the digest of its metadata.

    Args:
        within: directory that symbolic links must not leave; the default is the variant.

    Raises:
        IntegrityError: files are missing, changed or extra; the message names all of them.
    """
    if states := deviations(root, digest, within=within):
        listing = "\n  ".join(f"{state}: {path}" for path, state in states.items())
        raise IntegrityError(f"{root} differs from its digest:\n  {listing}", hint=_HINT)


def deviations(root: Path, digest: Digest, *, within: Path | None = None) -> dict[str, str]:
    """The files that differ from a digest: ``missing``, ``changed`` or ``extra``, by path."""
    hashes = digest_tree(root, algorithm=digest.algorithm, within=within).files
    states = {}
    for path in sorted({*digest.files, *hashes}):
        if path not in digest.files:
            states[path] = "extra"
        elif digest.files[path] != hashes.get(path):
            states[path] = "changed" if path in hashes else "missing"
    return states


def refuse_own_files(root: Path, new: Iterable[str], *, within: Path | None = None) -> None:
    """Refuse to replace a variant's directory that has files of the user.

    Args:
        new: the files that the digest of the new variant lists.
        within: directory that symbolic links must not leave; the default is the variant.

    Raises:
        UsageError: neither the old variant nor the new one lists a file.
    """
    if root.is_symlink() or not root.is_dir():
        return
    listed = {*UNHASHED, *new}
    with contextlib.suppress(OSError, KernforgeError):  # no document, or none that can be read
        digest = Metadata.from_json(read_file(root / FILE, within=within or root)).digest
        listed.update(digest.files if digest else ())
    if own := [path for path in tree_files(root, within=within) if path not in listed]:
        raise UsageError(
            f"{root} has files that are not of the variant, and it is replaced as a whole: "
            f"{', '.join(own)}",
            hint="move them elsewhere, or remove the directory",
        )


_HINT = "build the kernel again, or remove this copy and fetch it again; its code was not run"

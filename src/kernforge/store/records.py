# SPDX-License-Identifier: Apache-2.0
"""What a tree of the store held when it was made, and whether it still holds it.

A record stands beside its tree, ``KEY.record``: size, SHA-256 and execute bit of each file, target
of each link, and a hash of itself. Disks lose bits, and a machine that loses its power leaves files
that are empty or full of zeros; a tree that differs from its record is not used.

To read a large tree takes longer than many edits: with ``whole=False`` its files are compared by size, times
and number on the disk, and read where one of these changed, after each start of the machine, and
once a day.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.errors import StorageError
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAGIC = "kernforge-record 1 "
_DAY_S = 24 * 3600
_SHOWN = 3
# To read that much costs less than a hundredth of what it takes to compile with it.
_SMALL_BYTES, _SMALL_FILES = 8 << 20, 100
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class NoRecordError(Exception):
    """A tree has no record."""


@dataclass(frozen=True, slots=True)
class Record:
    """What a tree holds.

    Attributes:
        files: size in bytes, hex SHA-256, and whether it is executable, by path.
        links: target of each symbolic link, by path.
    """

    files: Mapping[str, tuple[int, str, bool]]
    links: Mapping[str, str]

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(size for size, _, _ in self.files.values())


def path(tree: Path) -> Path:
    """Where the record of a tree is."""
    return tree.with_name(f"{tree.name}.record")


def read_tree(tree: Path) -> Record:
    """The record of a tree as it is now."""
    found: dict[str, tuple[int, str, bool]] = {}
    links = {}
    for name, status in _walk(tree):
        if stat.S_ISLNK(status.st_mode):
            links[name] = str((tree / name).readlink())
        else:
            sha256 = files.sha256_file(tree / name)
            found[name] = (status.st_size, sha256, bool(status.st_mode & 0o100))
    return Record(files=found, links=links)


def write(record: Record, where: Path) -> None:
    """Write a record, so that it is complete after a crash too.

    Raises:
        StorageError: the disk is full or read-only.
    """
    files.write_atomic(where, _sealed({"files": record.files, "links": record.links}))


def read(where: Path) -> Record:
    """Read a record.

    Raises:
        NoRecordError: there is none.
        ValueError: it is damaged.
    """
    document = json.loads(_unsealed(where))
    return Record(
        files={name: (one[0], one[1], one[2]) for name, one in document["files"].items()},
        links=document["links"],
    )


def write_note(where: Path, value: object) -> None:
    """Remember a JSON value, under a hash of it; raises what ``write`` does."""
    if where.is_dir():  # damage may be of any kind
        files.remove_tree(where)
    files.write_atomic(where, _sealed(value), durable=False)


def read_note(where: Path) -> Any:
    """What was remembered; None if nothing was, or if it is damaged."""
    try:
        return json.loads(_unsealed(where))
    except (NoRecordError, ValueError):
        return None


def _sealed(value: object) -> str:
    body = json.dumps(value, sort_keys=True)
    return f"{_MAGIC}{hashlib.sha256(body.encode()).hexdigest()}\n{body}"


def _unsealed(where: Path) -> str:
    try:
        first, _, body = where.read_text(errors="replace").partition("\n")
    except FileNotFoundError:
        raise NoRecordError from None
    except OSError as error:
        raise ValueError(f"its record cannot be read: {error.strerror}") from error
    if first != _MAGIC + hashlib.sha256(body.encode()).hexdigest():
        raise ValueError("its record is damaged")
    return body


def differences(tree: Path, record: Record) -> tuple[str, ...]:
    """How a tree differs from its record; every file is read, unless its size tells enough."""
    found = []
    names = set()
    try:
        for name, status in _walk(tree):
            names.add(name)
            if problem := _difference(tree, name, status, record):
                found.append(problem)
    except OSError as error:
        found.append(f"{error.filename} cannot be read: {error.strerror}")
    else:
        missing = sorted({*record.files, *record.links} - names)
        found += [f"{name} is missing" for name in missing]
    return tuple(found)


def sentence(problems: tuple[str, ...]) -> str:
    """The first few of a tree's differences, for one line."""
    rest = len(problems) - _SHOWN
    more = f", and {rest} more" if rest > 0 else ""
    return ", ".join(problems[:_SHOWN]) + more


def is_sound(tree: Path, seen: Path, *, whole: bool) -> bool:
    """Whether a tree is as its record says.

    Args:
        seen: file that says when the tree was last read as a whole.
        whole: whether to read a large tree even if it seems unchanged since.

    Raises:
        NoRecordError: it has no record.
    """
    try:
        if not whole and _unchanged(tree, seen):
            return True
        record = read(path(tree))
    except (ValueError, OSError):
        return False
    if differences(tree, record):
        return False
    with contextlib.suppress(StorageError, OSError):  # a store that we may only read
        # The time of a file may have changed; the root's is where ``files.set_times`` looks first.
        os.utime(tree)
        if not _is_small(record):
            files.write_atomic(seen, _fingerprint(tree), durable=False)
    return True


def _is_small(record: Record) -> bool:
    return len(record.files) <= _SMALL_FILES and record.size <= _SMALL_BYTES


def _unchanged(tree: Path, seen: Path) -> bool:
    """Whether a tree was read less than a day ago, and nothing about its files changed since."""
    try:
        age = time.time() - seen.stat().st_mtime
        if not 0 <= age < _DAY_S:
            return False
        return seen.read_bytes() == _fingerprint(tree).encode()
    except OSError:
        return False


def _fingerprint(tree: Path) -> str:
    """Changes with the size, times, mode or place on the disk of a file, and with each start."""
    found = hashlib.sha256(_boot().encode())
    for name, s in (("", path(tree).stat()), *_walk(tree)):
        stamp = (s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino, s.st_mode)
        found.update(f"{name}\0{stamp}\n".encode(errors="surrogateescape"))
    return found.hexdigest()


def _boot() -> str:
    try:
        return _BOOT.read_text()
    except OSError:  # not Linux, or no /proc: the times and the day must do
        return ""


def _difference(tree: Path, name: str, status: os.stat_result, record: Record) -> str:
    """What is wrong with one entry of a tree; nothing where it is as it was made."""
    if stat.S_ISLNK(status.st_mode):
        if name not in record.links:
            return f"{name} is a link"
        right = str((tree / name).readlink()) == record.links[name]
        return "" if right else f"{name} leads elsewhere"
    if name not in record.files:
        return f"{name} was not there"
    size, sha256, executable = record.files[name]
    if not stat.S_ISREG(status.st_mode):
        return f"{name} is not a file"
    if status.st_size != size:
        return f"{name} has {status.st_size} bytes instead of {size}"
    if bool(status.st_mode & 0o100) != executable:
        return f"{name} is{'' if status.st_mode & 0o100 else ' not'} executable"
    if files.sha256_file(tree / name) != sha256:
        return f"{name} has other bytes"
    return ""


def _walk(tree: Path, below: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Everything in a tree but its directories, by path, in a fixed order."""
    with os.scandir(tree / below) as entries:
        for entry in sorted(entries, key=lambda one: one.name):
            name = f"{below}{entry.name}"
            status = entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(status.st_mode):
                yield from _walk(tree, f"{name}/")
            else:
                yield name, status

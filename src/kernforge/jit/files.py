# SPDX-License-Identifier: Apache-2.0
"""The files that a compilation reads, found by their includes, and whether they have changed since.

A file with the same size, times of change and inode has the same content, unless it changed so
shortly before it was read that another change could have the same time. No program can set the time
of the inode: it shows a change also if the time of the content was set back.
"""

from __future__ import annotations

import os
import posixpath
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from kernforge.errors import UsageError
from kernforge.source import includes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kernforge.source.includes import Closure

Stamp: TypeAlias = tuple[int, int, int, int]
"""Size, time of change in nanoseconds, inode, and when the inode changed, in nanoseconds."""
_SETTLED_NS = 2_000_000_000  # the coarsest time stamps in use are those of FAT
_OPAQUE_LIMIT = 5000
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What was on the disk when files were read.

    Attributes:
        stamps: of each file that was read; None for one that was looked for and not there.
        young: files that had changed shortly before.
    """

    stamps: Mapping[str, Stamp | None]
    young: frozenset[str]

    def unchanged(self) -> bool:
        """Whether all is as it was; False also if that cannot be known."""
        return not self.young and all(stamp(p) == old for p, old in self.stamps.items())


class Tree:
    """Files of this machine by their absolute paths without the leading slash.

    The mapping that ``includes.closure`` reads: a file is read when it is asked for.

    Args:
        given: texts of files that are not on the disk.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        self._texts: dict[str, str | None] = dict(given)
        self._stamps: dict[str, Stamp | None] = {}
        self._young: set[str] = set()

    def __contains__(self, path: object) -> bool:
        return self._text(str(path)) is not None

    def __iter__(self) -> Iterator[str]:
        return (path for path, text in self._texts.items() if text is not None)

    def get(self, path: str, default: str = "") -> str:
        """Text of a file."""
        text = self._text(path)
        return default if text is None else text

    def watch(self, path: str) -> Stamp | None:
        """Stamp of an absolute path, such as of an object; a change of it will be seen."""
        self._stamps[path] = current = stamp(path)
        self._note_young(path, current)
        return current

    def seen(self) -> Seen:
        """What was read so far."""
        return Seen(stamps=dict(self._stamps), young=frozenset(self._young))

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            real = f"/{path}"
            self._stamps[real] = current = stamp(real)
            self._texts[path] = None if current is None else _read(real)
            self._note_young(real, current)
        return self._texts[path]

    def _note_young(self, path: str, current: Stamp | None) -> None:
        if current and time.time_ns() - current[1] < _SETTLED_NS:
            self._young.add(path)


def find_closure(
    source: str, directories: tuple[str, ...], first: tuple[str, ...], tree: Tree
) -> Closure:
    """Files that a source may read; all paths are absolute, without the leading slash.

    Args:
        directories: search path.
        first: files that flags include.

    Raises:
        UsageError: there is no such source; a file cannot be read; or an include names a macro, and
            the search path holds too many files to take all of them.
    """
    if source not in tree:
        if os.path.isdir(f"/{source}"):  # noqa: PTH112
            raise UsageError(
                f"the source /{source} is a directory",
                hint="name files; load(directory) without sources builds a kernel project",
            )
        raise UsageError(f"there is no source /{source}")
    known: Mapping[str, str] = tree  # type: ignore[assignment]  # what is used of a mapping
    closure = includes.closure(source, known, directories, first=first)
    if not closure.opaque:
        return closure
    for path in _headers_below((posixpath.dirname(source), *directories)):
        tree.get(path)
    return includes.closure(source, known, directories, first=first)


def stamp(path: str) -> Stamp | None:
    """Stamp of a file; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - many files, each time
    except OSError:
        return None
    if not os.path.isfile(path):  # noqa: PTH113
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def _read(path: str) -> str:
    try:
        # Compilers take any bytes, in comments above all: what is not UTF-8 becomes surrogates.
        return Path(path).read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def _headers_below(directories: Iterable[str]) -> list[str]:
    headers: list[str] = []
    for top in dict.fromkeys(directories):
        for directory, _, names in os.walk(f"/{top}"):
            wanted = (n for n in names if os.path.splitext(n)[1] in _HEADERS)  # noqa: PTH122
            headers += [f"{directory}/{name}".lstrip("/") for name in wanted]
            if len(headers) > _OPAQUE_LIMIT:
                raise UsageError(
                    f"an include names a macro, which could mean any of more than {_OPAQUE_LIMIT} headers",
                    hint="write the header's name into the include, or name a smaller include path",
                )
    return headers

# SPDX-License-Identifier: Apache-2.0
"""The files that a compilation reads, found by their includes, and whether they have changed since.

A file with the same size, times of change and inode has the same content, unless it changed so
shortly before it was read that another change could have the same time. No program can set the time
of the inode: it shows a change also if the time of the content was set back.
"""

from __future__ import annotations

import difflib
import itertools
import os
import posixpath
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import TypeAlias

from kernforge.errors import UsageError
from kernforge.extension import flags
from kernforge.source import includes
from kernforge.source.includes import Closure
from kernforge.system.files import sha256_file

Stamp: TypeAlias = tuple[int, int, int, int]
"""Size, time of change in nanoseconds, inode, and when the inode changed, in nanoseconds."""
_SETTLED_NS = 2_000_000_000  # the coarsest time stamps in use are those of FAT
PROJECT = "src"
"""A project's directory in that of an action."""
OPAQUE_LIMIT = 5000
"""How many headers an include of a macro may mean at most: those beyond are not there."""
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", "")


class Tree:
    """Files of this machine, read on demand: the mapping that ``includes.closure`` takes.

    An action has them at their absolute paths without the leading slash. pip unpacks a source
    distribution into another directory each time; so that its objects are found again, an action
    has the files below a project's directory in ``src/``, wherever that lies.

    Args:
        given: texts of files that are not on the disk.
        here: the directory from which relative paths start.
        installed: directories whose content is part of the toolchain, not the user's.
        base: the project's directory; empty without one.
    """

    def __init__(
        self,
        given: Mapping[str, str],
        here: str = "/",
        installed: tuple[str, ...] = (),
        base: str = "",
    ) -> None:
        self._texts: dict[str, str | None] = dict(given)
        self.real_here, self.installed, self.base = here, installed, base
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

    @property
    def here(self) -> str:
        """The directory from which relative paths start, as ``virtual`` gives it."""
        return self.virtual(self.real_here)

    def virtual(self, word: str) -> str:
        """A word of a command line with the project's directory as ``/src``."""
        if not self.base:
            return word
        return f"{word}/".replace(f"{self.base}/", f"/{PROJECT}/").removesuffix("/")

    def path(self, given: str) -> str:
        """A user's path as an action has it."""
        return flags.absolute(self.virtual(given), self.here).lstrip("/")

    def real(self, path: str) -> str:
        """Real path of a file that an action sees."""
        top, slash, below = path.partition("/")
        return f"{self.base}{slash}{below}" if self.base and top == PROJECT else f"/{path}"

    def title(self, path: str) -> str:
        """What a person calls a source that an action sees; one that lies nowhere has no slash."""
        if self.base:
            return path.removeprefix(f"{PROJECT}/")
        return f"/{path}" if "/" in path else posixpath.splitext(path)[0]

    def restore(self, text: str) -> str:
        """What a compiler wrote, with paths as the user has them."""
        if self.base:
            above = posixpath.relpath(self.base, self.real_here)
            return re.sub(rf"(?<![\w/.-]){PROJECT}/", "" if above == "." else f"{above}/", text)
        paths = sorted((re.escape(path) for path in self if "/" in path), reverse=True)
        return re.sub(rf"(?<![\w/.-])({'|'.join(paths)})", r"/\1", text) if paths else text

    def is_installed(self, path: str) -> bool:
        """Whether an absolute path is part of the toolchain."""
        return flags.is_installed(path, self.installed)

    def closure(self, source: str, directories: tuple[str, ...], first: tuple[str, ...]) -> Closure:
        """Files that a source may read; with an include that names a macro, all headers count.

        Args:
            source: its path in an action, as all others.
            directories: search path.
            first: files that flags include.

        Raises:
            UsageError: there is no such source, or a file cannot be read.
        """
        if source not in self:
            raise self._no_source(source)
        known: Mapping[str, str] = self  # type: ignore[assignment]  # what is used of a mapping
        closure = includes.closure(source, known, directories, first=first)
        if not closure.opaque:
            return closure
        for path in self._headers_below((posixpath.dirname(source), *directories)):
            self.get(path)
        return includes.closure(source, known, directories, first=first)

    def watch(self, path: str) -> Stamp | None:
        """Stamp of an absolute path, such as of an object; a change of it will be seen."""
        self._stamps[path] = current = stamp(path)
        if current and time.time_ns() - current[1] < _SETTLED_NS:
            self._young.add(path)
        return current

    def identity(self, path: str) -> str:
        """What tells a file for the linker from others of its absolute path; empty without one.

        It is the content of a project's, which may lie elsewhere the next time.
        """
        current = self.watch(path)
        if current is None:
            return ""
        return sha256_file(Path(path)) if self.base else " ".join(map(str, current))

    def unchanged(self) -> bool:
        """Whether all that was read is as it was; False also if that cannot be known."""
        return not self._young and all(stamp(p) == old for p, old in self._stamps.items())

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = self._read(path)
        return self._texts[path]

    def _read(self, path: str) -> str | None:
        real = self.real(path)
        return None if self.watch(real) is None else read_text(real)

    def _headers_below(self, directories: Iterable[str]) -> Iterable[str]:
        headers: list[str] = []
        for top in dict.fromkeys(directories):
            for header in headers_below(self.real(top)):
                headers.append(top + header.removeprefix(self.real(top)))
                if len(headers) > OPAQUE_LIMIT:
                    return headers
        return headers

    def _no_source(self, source: str) -> UsageError:
        real = self.real(source)
        if os.path.isdir(real):  # noqa: PTH112
            return UsageError(
                f"the source {real} is a directory",
                hint="name files; load(directory) without sources builds a kernel project",
            )
        near = _near(real)
        return UsageError(
            f"there is no source {real}", hint=f"did you mean {near}?" if near else ""
        )


def _near(source: str) -> str:
    """Nearest existing file's path below the directory that exists; empty if none is near."""
    top = Path(source).parent
    while not top.is_dir():
        top = top.parent
    suffix = posixpath.splitext(source)[1]
    below = itertools.islice(top.rglob(f"*{suffix}"), OPAQUE_LIMIT) if top != Path("/") else ()
    names = {path.name: str(path.relative_to(top)) for path in below}
    near = difflib.get_close_matches(posixpath.basename(source), names, n=1)
    return names[near[0]] if near else ""


def stamp(path: str) -> Stamp | None:
    """Stamp of a file; None if there is none."""
    try:
        status = os.stat(path)  # noqa: PTH116 - many files, each time
    except OSError:
        return None
    if not S_ISREG(status.st_mode):
        return None
    return (status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)


def read_text(path: str) -> str | None:
    """Text of a file, as compilers take it; None if there is none.

    Raises:
        UsageError: it cannot be read.
    """
    try:
        # Compilers take any bytes, in comments above all: what is not UTF-8 becomes surrogates.
        return Path(path).read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error


def headers_below(top: str) -> Iterator[str]:
    """Paths of the headers below a directory."""
    for directory, _, names in os.walk(top):
        for name in names:
            if posixpath.splitext(name)[1] in _HEADERS:
                yield f"{directory}/{name}"

# SPDX-License-Identifier: Apache-2.0
"""The sources of an extension, with all that they may read, as an action's directory has them.

pip unpacks a source distribution into another directory each time. So that its objects are found
again, an action sees the project as ``src/``, wherever it lies; files elsewhere keep their paths.
"""

from __future__ import annotations

import os
import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.jit.flags import absolute, is_below
from kernforge.source import includes

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from kernforge.source.includes import Closure

NAME = "src"
"""The project's directory in that of an action."""
_ABOVE = 2
_OPAQUE_LIMIT = 5000
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh", ".inl", ".inc", ".ipp", ".tpp", "")
SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".c", ".cu")
"""Suffixes of the files that are compiled."""
CUDA_SUFFIX = ".cu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionUnit:
    """A source with what it may read.

    Attributes:
        path: in the action's directory.
        texts: of every file that it may read, itself among them, by path.
        closure: its include closure.
    """

    path: str
    texts: Mapping[str, str]
    closure: Closure

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.path.removeprefix(f"{NAME}/")

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.path.endswith(CUDA_SUFFIX)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectFiles:
    """The files of this machine under the names that an action sees.

    Attributes:
        base: real path of the directory that an action sees as ``src``.
        here: real path of the directory of setup.py, from which relative paths start.
        installed: directories whose content is part of the toolchain, not the user's.
    """

    base: str
    here: str
    installed: tuple[str, ...] = ()
    _texts: dict[str, str | None] = field(default_factory=dict, compare=False)

    @classmethod
    def around(
        cls, here: str, used: Iterable[str], installed: tuple[str, ...] = ()
    ) -> ProjectFiles:
        """The files of a project whose setup.py may lie below its sources.

        Args:
            here: real path of the directory of setup.py.
            used: paths of sources and directories that it names.
            installed: directories whose content is part of the toolchain.
        """
        base = here
        for path in (absolute(each, here) for each in used):
            above = here
            for _ in range(_ABOVE):
                above = posixpath.dirname(above)
                if above.count("/") > 1 and is_below(path, [above]) and not is_below(path, [base]):
                    base = above
        return cls(base=base, here=here, installed=installed)

    @property
    def virtual_here(self) -> str:
        """The directory of setup.py as words of a command line name it, from the root."""
        return self.virtual(self.here)

    def virtual(self, word: str) -> str:
        """A word of a command line with the project's directory as ``/src``."""
        return f"{word}/".replace(f"{self.base}/", f"/{NAME}/").removesuffix("/")

    def is_installed(self, path: str) -> bool:
        """Whether an absolute path is part of the toolchain."""
        return is_below(path, self.installed)

    def real(self, path: str) -> str:
        """Real path of a file that an action sees."""
        top, slash, below = path.partition("/")
        return f"{self.base}{slash}{below}" if top == NAME else f"/{path}"

    # -- the mapping that includes.closure reads ---------------------------------------------

    def __contains__(self, path: object) -> bool:
        return self._text(str(path)) is not None

    def __iter__(self) -> Iterator[str]:
        return (path for path, text in self._texts.items() if text is not None)

    def get(self, path: str, default: str = "") -> str:
        """Text of a file."""
        text = self._text(path)
        return default if text is None else text

    def _text(self, path: str) -> str | None:
        if path not in self._texts:
            self._texts[path] = _read(Path(self.real(path)))
        return self._texts[path]

    def unit(
        self, source: str, directories: tuple[str, ...], first: tuple[str, ...]
    ) -> ExtensionUnit:
        """A source with what it may read.

        Args:
            source: its path, as an action sees it.
            directories: search path of headers, likewise.
            first: files that flags include, likewise.

        Raises:
            UsageError: there is no such source, or a file cannot be read.
        """
        if source not in self:
            raise UsageError(
                f"there is no source {self.real(source)}",
                hint="paths in setup.py start from its own directory",
            )
        known: Mapping[str, str] = self  # type: ignore[assignment]  # what is used of a mapping
        closure = includes.closure(source, known, directories, first=first)
        if closure.opaque:
            for path in self._headers_below((posixpath.dirname(source), *directories)):
                self.get(path)
            closure = includes.closure(source, known, directories, first=first)
        texts = {path: self.get(path) for path in closure.files}
        return ExtensionUnit(path=source, texts=texts, closure=closure)

    def _headers_below(self, directories: Iterable[str]) -> Iterator[str]:
        """Headers that an include of a macro could mean; at most so many, or none is."""
        found = 0
        for top in dict.fromkeys(directories):
            real = self.real(top)
            for directory, _, names in os.walk(real):
                below = directory.removeprefix(real)
                for name in names:
                    if posixpath.splitext(name)[1] in _HEADERS and found < _OPAQUE_LIMIT:
                        found += 1
                        yield f"{top}{below}/{name}"


def check_suffixes(name: str, sources: Iterable[str]) -> None:
    """Refuse files that are not compiled here.

    Args:
        name: the extension's.
        sources: paths.

    Raises:
        UsageError: one is in another language.
    """
    for source in sources:
        if not source.endswith(SUFFIXES):
            suffix = posixpath.splitext(source)[1] or "a file without a suffix"
            raise UsageError(
                f"extension {name}: {source} is not compiled here ({suffix})",
                hint=f"sources are {', '.join(SUFFIXES)}; headers are found by their includes",
            )


def _read(path: Path) -> str | None:
    try:
        # Compilers take any bytes, in comments above all: what is not UTF-8 becomes surrogates.
        return path.read_bytes().decode(errors="surrogateescape")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error

# SPDX-License-Identifier: Apache-2.0
"""The sources of an extension, with all that they may read, as an action's directory has them.

pip unpacks a source distribution into another directory each time. So that its objects are found
again, an action sees the project as ``src/``, wherever it lies; files elsewhere keep their paths.
"""

from __future__ import annotations

import itertools
import posixpath
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.extension.files import OPAQUE_LIMIT, TextFiles, headers_below, read_text
from kernforge.extension.flags import absolute, is_below, is_installed
from kernforge.extension.plan import ModuleUnit

if TYPE_CHECKING:
    from collections.abc import Iterable

NAME = "src"
"""The project's directory in that of an action."""
_ABOVE = 2
SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".c", ".cu")
"""Suffixes of the files that are compiled."""
CUDA_SUFFIX = ".cu"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionUnit(ModuleUnit):
    """A source of an extension with what it may read."""

    @property
    def title(self) -> str:
        """What a person calls it."""
        return self.path.removeprefix(f"{NAME}/")

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.path.endswith(CUDA_SUFFIX)


class ProjectFiles(TextFiles):
    """The files of this machine under the names that an action sees.

    Attributes:
        base: real path of the directory that an action sees as ``src``.
        here: real path of the directory of setup.py, from which relative paths start.
        installed: directories whose content is part of the toolchain, not the user's.
    """

    def __init__(self, base: str, here: str, installed: tuple[str, ...]) -> None:
        super().__init__({})
        self.base, self.here, self.installed = base, here, installed

    @classmethod
    def around(cls, here: str, used: Iterable[str], installed: tuple[str, ...]) -> ProjectFiles:
        """The files of a project whose setup.py may lie below the paths that it has ``used``."""
        base = here
        for path in (absolute(each, here) for each in used):
            above = here
            for _ in range(_ABOVE):
                above = posixpath.dirname(above)
                if above.count("/") > 1 and is_below(path, [above]) and not is_below(path, [base]):
                    base = above
        return cls(base, here, installed)

    @property
    def virtual_here(self) -> str:
        """The directory of setup.py as words of a command line name it, from the root."""
        return self.virtual(self.here)

    def virtual(self, word: str) -> str:
        """A word of a command line with the project's directory as ``/src``."""
        return f"{word}/".replace(f"{self.base}/", f"/{NAME}/").removesuffix("/")

    def is_installed(self, path: str) -> bool:
        """Whether an absolute path is part of the toolchain."""
        return is_installed(path, self.installed)

    def real(self, path: str) -> str:
        """Real path of a file that an action sees."""
        top, slash, below = path.partition("/")
        return f"{self.base}{slash}{below}" if top == NAME else f"/{path}"

    def unit(
        self, source: str, directories: tuple[str, ...], first: tuple[str, ...]
    ) -> ExtensionUnit:
        """A source with what it may read; all paths are as an action sees them.

        Args:
            directories: search path of headers.
            first: files that flags include.

        Raises:
            UsageError: there is no such source, or a file cannot be read.
        """
        if source not in self:
            raise UsageError(
                f"there is no source {self.real(source)}",
                hint="paths in setup.py start from its own directory",
            )
        closure = self.closure(source, directories, first)
        return ExtensionUnit(path=source, texts=self.texts(closure), closure=closure)

    def _read(self, path: str) -> str | None:
        return read_text(self.real(path))

    def _headers_below(self, directories: Iterable[str]) -> Iterable[str]:
        """Headers that an include of a macro could mean, up to a limit."""
        headers = (
            top + header.removeprefix(self.real(top))
            for top in dict.fromkeys(directories)
            for header in headers_below(self.real(top))
        )
        return itertools.islice(headers, OPAQUE_LIMIT)


def check_suffixes(name: str, sources: Iterable[str]) -> None:
    """Refuse files of an extension that are not compiled here.

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

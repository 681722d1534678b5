# SPDX-License-Identifier: Apache-2.0
"""Headers of the machine that are part of no tree of the toolchain, as those of zlib or Eigen.

Compilers find them without being told, in ``/usr/include`` and beside it. The compiler's own are
part of its fingerprint; the content of all others that a unit names is part of its key, so that one
that is installed later counts too. What these include stands in the result.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from kernforge.source import includes
from kernforge.system import files
from kernforge.system.process import Command, Runner

_SEARCHED = re.compile(r"^#include <\.\.\.> .*?\n(?P<paths>(?: .*\n)+)", re.MULTILINE)
# Directories of the C++ library and of the compiler.
# What a compiler's fingerprint covers, so that most units ask no compiler.
_C_LIBRARY = frozenset(
    f"{name}.h"
    for name in (
        *("assert", "complex", "ctype", "dlfcn", "errno", "fenv", "float", "inttypes", "limits"),
        *("locale", "math", "pthread", "setjmp", "signal", "stdarg", "stdbool", "stddef", "stdint"),
        *("stdio", "stdlib", "string", "sys/mman", "sys/stat", "time", "unistd", "wchar"),
    )
)
_OWN = re.compile(r"/(?:c\+\+|gcc)(?:/|$)")


def directories(compiler: str, runner: Runner) -> tuple[str, ...]:
    """Where a compiler looks for headers without being told, in its order."""
    argv = (compiler, "-E", "-v", "-x", "c++", "/dev/null")
    said = runner(Command(argv=argv, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"})).stderr
    found = _SEARCHED.search(said)
    paths = found["paths"].splitlines() if found else []
    return tuple(str(Path(path.strip()).resolve()) for path in paths)


class SystemHeaders:
    """Finds what the machine's headers are that a unit may read.

    Args:
        searched: gives the directories of the compiler for a processor, empty for this machine's.
    """

    def __init__(self, searched: Callable[[str], Sequence[str]]) -> None:
        self._searched = functools.cache(searched)
        self._sha256 = functools.cache(files.sha256_file)

    def read_by(
        self, names: Iterable[str], cpu: str = "", first: Sequence[str] = ()
    ) -> dict[str, str]:
        """Hex SHA-256 of each header that includes of these names may mean, by path.

        Args:
            names: as they are written, of files that the project does not have.
            first: directories that the unit's flags name.
        """
        # The headers of the C++ library have no suffix.
        others = (
            name
            for name in names
            if ("." in name or "/" in name)
            and name not in _C_LIBRARY
            and not includes.is_of_a_tree(name)
        )
        paths = {path for name in others if (path := self._path(name, cpu, first))}
        return {str(path): self._sha256(path) for path in sorted(paths)}

    def _path(self, name: str, cpu: str, first: Sequence[str]) -> Path | None:
        """The header that a name means; None for the compiler's own, and where there is none."""
        if name.startswith("/"):
            return Path(name) if Path(name).is_file() else None
        for directory in (*first, *self._searched(cpu)):
            path = Path(directory, name)
            if path.is_file():
                return None if _OWN.search(directory) else path
        return None

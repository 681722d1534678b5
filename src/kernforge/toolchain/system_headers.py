# SPDX-License-Identifier: Apache-2.0
"""Headers of the machine that are part of no tree of the toolchain, as those of zlib or Eigen.

Compilers find them without being told, in ``/usr/include`` and beside it. The compiler's own are
part of its fingerprint; the content of all others that a unit may read is part of its key.
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
# Headers of torch that include one of the machine's.
_OVER_NCCL = ("torch/csrc/distributed/", "torch/csrc/cuda/nccl.h")
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
        self._named = functools.cache(_named)
        self._sha256 = functools.cache(files.sha256_file)

    def read_by(
        self, names: Iterable[str], cpu: str = "", first: Sequence[str] = ()
    ) -> dict[str, str]:
        """Hex SHA-256 of each header that includes of these names may reach, by path.

        Args:
            names: as they are written, of files that the project does not have.
            first: directories that the unit's flags name.
        """
        reached: dict[str, str] = {}
        written = [*names]
        pending = [name for name in written if _may_be_other(name)]
        if any(name.startswith(_OVER_NCCL) for name in written):
            pending.append("nccl.h")
        seen = set(pending)
        while pending:
            path = self._path(pending.pop(), cpu, first)
            if path is None or str(path) in reached:
                continue
            reached[str(path)] = self._sha256(path)
            new = set(self._named(path)) - seen
            seen |= new
            pending += new
        return dict(sorted(reached.items()))

    def _path(self, name: str, cpu: str, first: Sequence[str]) -> Path | None:
        """The header that a name means; None for the compiler's own, and where there is none."""
        if name.startswith("/"):
            return Path(name) if Path(name).is_file() else None
        for directory in (*first, *self._searched(cpu)):
            path = Path(directory, name)
            if path.is_file():
                return None if _OWN.search(directory) else path
        return None


def _may_be_other(name: str) -> bool:
    """Whether a name may be that of a header of the machine; the C++ library's have no suffix."""
    likely = ("." in name or "/" in name) and name not in _C_LIBRARY
    return likely and not includes.is_of_a_tree(name)


def _named(path: Path) -> tuple[str, ...]:
    """What a header includes: names, and the path of what lies beside it."""
    found = includes.names_in(path.read_text(errors="replace"))
    beside = ((name, path.parent / name) for name, quoted in found if quoted)
    there = {name: str(real) for name, real in beside if real.is_file()}
    return tuple(there.get(name, name) for name, _ in found if _may_be_other(name))

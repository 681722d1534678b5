# SPDX-License-Identifier: Apache-2.0
"""Which files a translation unit may read, found by looking at its ``#include`` lines.

Conditions are ignored, so the answer holds every file that could be read and perhaps some that
are not: a key made from it may be too careful, never too careless. The compiler is given these
files and no others, so a file that was overlooked is an error at once, not a stale result later.
"""

from __future__ import annotations

import functools
import posixpath
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

_INCLUDE = re.compile(
    r'^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*))',
    re.MULTILINE,
)
_TORCH = ("torch/", "ATen/", "c10/", "caffe2/", "THC/", "pybind11/")
# What wraps torch's C++ API in Python's.
_PYTHON = ("Python.h", "torch/extension.h", "torch/python.h", "pybind11/", "torch/csrc/utils/")
_ATEN_CUDA = ("ATen/cuda/", "c10/cuda/", "torch/extension.h", "torch/all.h", "THC/")
# Headers of CUDA's libraries, which are not part of its compiler and runtime.
_CUDA_LIBRARIES = (
    *("cublas", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nvtx3/"),
    *("cuda_profiler_api.h", "cudaProfiler.h", "nvToolsExt"),
)
_CUTLASS = ("cutlass/", "cute/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """What a translation unit may read.

    Attributes:
        files: the project's own, sorted, the unit itself among them.
        foreign: names that the project does not have, as they are written, sorted.
        opaque: whether an include names a macro, so that the two lists may be incomplete.
    """

    files: tuple[str, ...]
    foreign: tuple[str, ...]
    opaque: bool

    @property
    def reaches_torch(self) -> bool:
        """Whether torch's headers may be read."""
        return self.opaque or any(name.startswith(_TORCH) for name in self.foreign)

    @property
    def reaches_aten_cuda(self) -> bool:
        """Whether ATen's CUDA headers may be read, which want those of CUDA's libraries."""
        return self.opaque or any(name.startswith(_ATEN_CUDA) for name in self.foreign)

    @property
    def reaches_cuda_libraries(self) -> bool:
        """Whether headers of CUDA's libraries may be read, by name or through ATen."""
        return self.reaches_aten_cuda or any(n.startswith(_CUDA_LIBRARIES) for n in self.foreign)

    @property
    def reaches_cutlass(self) -> bool:
        """Whether CUTLASS's headers may be read."""
        return self.opaque or any(name.startswith(_CUTLASS) for name in self.foreign)

    @property
    def reaches_python(self) -> bool:
        """Whether Python's headers may be read."""
        return self.opaque or any(name.startswith(_PYTHON) for name in self.foreign)


def closure(
    unit: str,
    sources: Mapping[str, str],
    include_dirs: tuple[str, ...],
    *,
    first: tuple[str, ...] = (),
    content: Collection[str] = (),
) -> Closure:
    """Follow the includes of a unit.

    Args:
        unit: the source, relative to the project.
        sources: text of each file of the project that could be included, by relative path.
        include_dirs: directories relative to the project, in search order.
        first: files that the command line includes before the unit's first line.
        content: files that do without what the project does not have: they look before they
            include it.
    """
    seen: set[str] = set()
    foreign: set[str] = set()
    opaque = False
    todo = [unit, *(path for path in first if path in sources)]
    while todo:
        path = todo.pop()
        if path in seen:
            continue
        seen.add(path)
        for quoted, angled, macro in _includes(sources.get(path, "")):
            opaque = opaque or bool(macro)
            name = quoted or angled
            if not name:
                continue
            # All candidates and not only the first: which one is read may hang on a condition.
            here = (posixpath.dirname(path),) if quoted else ()
            found = [p for p in _candidates(name, here + include_dirs) if p in sources]
            todo += found
            if not found and path not in content:
                foreign.add(name)
    files = set(sources) if opaque else seen
    return Closure(files=tuple(sorted(files)), foreign=tuple(sorted(foreign)), opaque=opaque)


def named(
    path: str, sources: Mapping[str, str], include_dirs: tuple[str, ...]
) -> dict[str, tuple[str, ...]]:
    """The names that a file includes, as it writes them, and the project's files that each may be.

    Args:
        path: the file.
        sources: as for ``closure``.
        include_dirs: as for ``closure``.
    """
    found = {}
    for quoted, angled, _ in _includes(sources.get(path, "")):
        here = (posixpath.dirname(path),) if quoted else ()
        if name := quoted or angled:
            found[name] = tuple(p for p in _candidates(name, here + include_dirs) if p in sources)
    return found


def base_names(text: str) -> set[str]:
    """Last parts of the names that a text includes, whatever their extension."""
    return {posixpath.basename(quoted or angled) for quoted, angled, _ in _includes(text)} - {""}


@functools.lru_cache(maxsize=1 << 14)
def _includes(text: str) -> tuple[tuple[str, str, str], ...]:
    """(quoted, angled, macro) of each include line; headers are read by many units."""
    return tuple(_INCLUDE.findall(text))


def _candidates(name: str, directories: tuple[str, ...]) -> Iterator[str]:
    for directory in directories:
        yield posixpath.normpath(posixpath.join(directory, name))

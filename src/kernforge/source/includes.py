# SPDX-License-Identifier: Apache-2.0
"""Files that a translation unit may read, by its ``#include`` lines.

Preprocessor conditions are ignored, so the result has every file that could be read and perhaps
more: a key made from it may change too often, never too rarely. The compiler gets these files and
no others, so that a missing file is an error at once and not a stale result later.
"""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

_INCLUDE = re.compile(
    r"^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*"
    r'(?:"([^"\n]+)"|<([^>\n]+)>|([A-Za-z_]\w*))',
    re.MULTILINE,
)
_DEFINED = re.compile(
    r'^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+(?:"([^"\n]+)"|<([^>\n]+)>)', re.MULTILINE
)
_TORCH = ("torch/", "ATen/", "c10/", "caffe2/", "THC/", "pybind11/")
# Headers that include Python's.
_PYTHON = ("Python.h", "torch/extension.h", "torch/python.h", "pybind11/", "torch/csrc/utils/")
_ATEN_CUDA = ("ATen/cuda/", "c10/cuda/", "torch/extension.h", "torch/all.h", "THC/")
# Headers of CUDA's libraries, which are not part of CUDA's compiler and runtime packages.
_CUDA_LIBRARIES = (
    *("cublas", "cufft", "curand", "cusolver", "cusparse", "nvrtc", "nvtx3/"),
    *("cuda_profiler_api.h", "cudaProfiler.h", "nvToolsExt"),
)
_CUTLASS = ("cutlass/", "cute/")


@dataclass(frozen=True, slots=True, kw_only=True)
class Closure:
    """The files that a translation unit may read.

    Attributes:
        files: paths of the project's files, sorted, with the unit itself.
        foreign: included names that the project does not have, as written, sorted.
        opaque: whether an include names a macro. Then all files of the project count, with all
            that they include or define a macro as, and any tree of the toolchain may be read.
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
        """Whether ATen's CUDA headers may be read, which include those of CUDA's libraries."""
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
        unit: path of the source, relative to the project.
        sources: text of each file of the project that could be included, by relative path.
        include_dirs: directories relative to the project, in search order.
        first: files that the command line includes before the unit's first line.
        content: files whose includes count only where the project has them, because they test
            ``__has_include`` first.
    """
    seen: set[str] = set()
    foreign: set[str] = set()
    opaque = False
    pending = [unit, *(path for path in first if path in sources)]
    while pending:
        path = pending.pop()
        if path in seen:
            continue
        seen.add(path)
        for quoted, angled, macro in _includes(sources.get(path, "")):
            if macro and not opaque:
                opaque = True
                pending += sources
            name = quoted or angled
            if not name:
                continue
            # All candidates and not only the first: a condition may decide which one is read.
            here = (posixpath.dirname(path),) if quoted else ()
            files_of_name = [p for p in _candidates(name, here + include_dirs) if p in sources]
            pending += files_of_name
            if not files_of_name and path not in content:
                foreign.add(name)
    if opaque:
        for path in seen:
            named = _DEFINED.findall(sources.get(path, ""))
            foreign.update(quoted or angled for quoted, angled in named)
    files = set(sources) if opaque else seen
    return Closure(files=tuple(sorted(files)), foreign=tuple(sorted(foreign)), opaque=opaque)


def base_names(text: str) -> set[str]:
    """Last parts of the names that a text includes, with any extension."""
    return {posixpath.basename(quoted or angled) for quoted, angled, _ in _includes(text)} - {""}


@functools.lru_cache(maxsize=1 << 14)
def _includes(text: str) -> tuple[tuple[str, str, str], ...]:
    """(quoted, angled, macro) of each include line; cached, because many units read a header."""
    return tuple(_INCLUDE.findall(text))


def _candidates(name: str, directories: tuple[str, ...]) -> Iterator[str]:
    for directory in directories:
        yield posixpath.normpath(posixpath.join(directory, name))

# SPDX-License-Identifier: Apache-2.0
"""CMakeLists.txt of a project: the template, filled with a plan's units, flags and architectures.

What depends on the toolkit is written once for each range of toolkits in which it is equal, so that
the file has no rules, only their results, and can be read and changed by hand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2
from kernforge.builder import flags, layout
from kernforge.manifest.model import Backend, CudaKernel, Torch, TvmFfi
from kernforge.project import units
from kernforge.project.units import Sources, Unit
from kernforge.toolchain import header_libraries

_TEMPLATE = resources.files("kernforge") / "templates" / "export" / "CMakeLists.txt"
# CUDA versions at which the default architectures and the rules for flags change.
_EDGES: tuple[Version2, ...] = (Version2(13, 0), Version2(12, 8), Version2(0, 0))
_BUILT: tuple[Backend, ...] = ("cpu", "cuda")


def text(sources: Sources) -> str:
    """Text of CMakeLists.txt."""
    manifest = sources.manifest
    framework = manifest.framework
    tvm_ffi = isinstance(framework, TvmFfi)
    # The text of _ops.py is the same for all compiled variants of a framework.
    kind = "tvm-ffi01" if tvm_ffi else "torch-stable-abi210"
    variant = Variant.parse(f"{kind}-cpu-x86_64-linux")
    backends = [backend for backend in _BUILT if backend in manifest.general.backends]
    cutlass = units.cutlass(manifest)
    words = {
        "NAME": manifest.general.python_name,
        "PACKAGE": units.package_dir(manifest).rstrip("/"),
        "FRAMEWORK": "tvm-ffi" if tvm_ffi else "torch",
        "LANGUAGES": " ".join(backend.upper() for backend in backends),
        "SOURCES": "\n".join(_sources(sources, backends)),
        "DEFINES": " ".join(_stable(framework, backends)) if isinstance(framework, Torch) else "",
        "UNIQUE": sources.identity[:10],
        "CUTLASS": header_libraries.RELEASES[cutlass] if cutlass else "",
        "OPS_MODULE": layout.ops_module("@OPS_NAME@", variant),
    }
    result = _TEMPLATE.read_text()
    for word, value in words.items():
        result = result.replace(f"@{word}@", value)
    return result


def _stable(framework: Torch, backends: Iterable[Backend]) -> Iterator[str]:
    """Definition of the stable ABI's target for each backend."""
    for backend in backends:
        if oldest := framework.stable_abi_for(backend):
            yield f'"$<$<STREQUAL:${{GPU_LANG}},{backend.upper()}>:{flags.stable_target(oldest)}>"'


def _sources(sources: Sources, backends: Sequence[Backend]) -> Iterator[str]:
    """The sources of the backend to build, by ranges of toolkits for CUDA."""
    if "cpu" in backends:
        yield 'if(GPU_LANG STREQUAL "CPU")'
        yield from _listed(sources.units("cpu"))
        yield "endif()"
    if "cuda" not in backends:
        return
    sections = [s for s in sources.manifest.sections("cuda").values() if isinstance(s, CudaKernel)]
    edges = {*_EDGES, *(s.cuda_minver for s in sections if s.cuda_minver)}
    word = "if"
    for edge in sorted(edges, reverse=True):
        newer = f"CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL {edge}"
        yield f'{word}(GPU_LANG STREQUAL "CUDA" AND {newer})'
        yield from _listed(sources.units("cuda", edge), edge)
        word = "elseif"
    yield "endif()"


def _listed(sources: tuple[Unit, ...], cuda: Version2 | None = None) -> Iterator[str]:
    """Sources with their options; device code for each architecture that build.toml asks for."""
    yield "  list(APPEND sources"
    yield from (f"    {_quoted(unit.path)}" for unit in sources)
    yield "  )"
    for unit in sources:
        options = [_escaped(flag) for flag in unit.flags]
        if unit.is_cuda and cuda is not None:
            # As one word: CMake leaves out a word that it has seen.
            codes = [word for arch in unit.archs for word in arch.gencode()[1::2]]
            options += [f"-gencode={code}" for code in codes]
        properties = "" if unit.is_cuda else " LANGUAGE CXX"
        if unit.include:
            base = "${CMAKE_CURRENT_SOURCE_DIR}"
            directories = ";".join(f"{base}/{_escaped(path)}" for path in unit.include)
            properties += f' INCLUDE_DIRECTORIES "{directories}"'
        yield f"  set_source_files_properties({_quoted(unit.path)} PROPERTIES"
        yield f'   {properties} COMPILE_OPTIONS "{";".join(options)}")'


def _escaped(text: str) -> str:
    for sign in ("\\", '"', "$", ";"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'

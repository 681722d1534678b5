# SPDX-License-Identifier: Apache-2.0
"""The CMakeLists.txt of a project: the same units, flags and architectures as in a build plan.

Settings that depend on the toolkit are written once for each range of toolkits in which they are
equal, so that the file has no rules, only their results, and can be read and changed by hand.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.build.plan import flags
from kernforge.manifest.model import CudaKernel, Torch, TvmFfi
from kernforge.project import units

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.manifest.document import Manifest
    from kernforge.project.units import Unit

# CUDA versions at which the default architectures and the rules for flags change.
_EDGES: tuple[Version2, ...] = (Version2(13, 0), Version2(12, 8), Version2(0, 0))
_HEAD = """# Written by `kernforge export`; it builds what `kernforge build` builds, for this machine.
cmake_minimum_required(VERSION 3.26)
project(@PYTHON_NAME@ LANGUAGES CXX)

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
if(NOT CMAKE_LIBRARY_OUTPUT_DIRECTORY)
  set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${CMAKE_CURRENT_SOURCE_DIR}/@PACKAGE@")
endif()
option(BUILD_ALL_SUPPORTED_ARCHS "Build for every GPU of build.toml, not only for those here" OFF)
find_package(Python3 REQUIRED COMPONENTS Interpreter Development.SABIModule)
set(languages @LANGUAGES@)  # what build.toml has sources for
"""
_TORCH = """
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -c "import torch
print(torch.utils.cmake_prefix_path, torch.__version__.split('+')[0],
      'CUDA' if torch.version.cuda else 'HIP' if torch.version.hip else 'CPU', sep=';')"
  OUTPUT_VARIABLE torch_says OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(GET torch_says 0 torch_prefix)
list(GET torch_says 1 TORCH_VERSION)
list(GET torch_says 2 torch_language)
if(torch_language STREQUAL "CUDA" AND NOT torch_language IN_LIST languages)
  set(torch_language CPU)
endif()
set(GPU_LANG "${torch_language}" CACHE STRING "CUDA or CPU")
list(APPEND CMAKE_PREFIX_PATH "${torch_prefix}")
find_package(Torch REQUIRED)
set(CMAKE_CXX_STANDARD 17)
if(TORCH_VERSION VERSION_GREATER_EQUAL 2.12)
  set(CMAKE_CXX_STANDARD 20)
endif()
"""
_TVM_FFI = """
if("CUDA" IN_LIST languages)
  include(CheckLanguage)
  check_language(CUDA)
endif()
if(CMAKE_CUDA_COMPILER)
  set(GPU_LANG CUDA CACHE STRING "CUDA or CPU")
else()
  set(GPU_LANG CPU CACHE STRING "CUDA or CPU")
endif()
execute_process(
  COMMAND "${Python3_EXECUTABLE}" -m tvm_ffi.config --cmakedir
  OUTPUT_VARIABLE tvm_ffi_ROOT OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
find_package(tvm_ffi CONFIG REQUIRED)
set(CMAKE_CXX_STANDARD 17)
"""
_CUDA = """
if(GPU_LANG STREQUAL "CUDA")
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD ${CMAKE_CXX_STANDARD})
  # Each source has its own architectures.
  string(REGEX REPLACE "-gencode[= ]*arch=[^ ]+" "" CMAKE_CUDA_FLAGS "${CMAKE_CUDA_FLAGS}")
  set(CMAKE_CUDA_ARCHITECTURES OFF)
  set(gpus "")
  if(NOT BUILD_ALL_SUPPORTED_ARCHS)
    execute_process(
      COMMAND nvidia-smi --query-gpu=compute_cap --format=csv,noheader
      OUTPUT_VARIABLE gpus ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE RESULT_VARIABLE failed)
    if(failed)
      set(gpus "")
    endif()
    string(REPLACE "\\n" ";" gpus "${gpus}")
  endif()
endif()

# The arguments of nvcc for a list of architectures such as 9.0a or 12.1+PTX: for all of them, or
# for the one that serves each GPU of this machine.
function(gencode result)
  set(chosen ${ARGN})
  foreach(gpu IN LISTS gpus)
    set(best "")
    string(REGEX MATCH "^[0-9]+" major "${gpu}")
    foreach(arch IN LISTS ARGN)
      string(REGEX MATCH "^[0-9.]+" number "${arch}")
      if(number VERSION_EQUAL gpu)
        set(best "${arch}")
        break()
      elseif(arch MATCHES "^${major}\\\\.[0-9]+(\\\\+PTX)?$" AND number VERSION_LESS gpu)
        set(best "${arch}")
      endif()
    endforeach()
    if(best)
      list(APPEND serving "${best}")
    else()
      set(serving ${ARGN})
      break()
    endif()
  endforeach()
  if(serving)
    list(REMOVE_DUPLICATES serving)
    set(chosen ${serving})
  endif()
  set(found "")
  foreach(arch IN LISTS chosen)
    string(REGEX MATCH "^[0-9.]+[af]?" name "${arch}")
    string(REPLACE "." "" name "${name}")
    list(APPEND found "-gencode=arch=compute_${name},code=sm_${name}")
    if(arch MATCHES "PTX")
      list(APPEND found "-gencode=arch=compute_${name},code=compute_${name}")
    endif()
  endforeach()
  set(${result} ${found} PARENT_SCOPE)
endfunction()
"""
_TARGET = """
string(TOLOWER "${GPU_LANG}" backend)
set(OPS_NAME "_@PYTHON_NAME@_${backend}_@UNIQUE@")
add_library(kernel MODULE ${sources})
set_target_properties(kernel PROPERTIES
  PREFIX "" OUTPUT_NAME "${OPS_NAME}" SUFFIX "@SUFFIX@" CXX_STANDARD_REQUIRED ON
  CXX_VISIBILITY_PRESET default POSITION_INDEPENDENT_CODE ON)
target_include_directories(kernel PRIVATE csrc)
target_compile_definitions(kernel PRIVATE @NAME_DEFINE@=${OPS_NAME} ${GPU_LANG}_KERNEL)
target_compile_options(kernel PRIVATE "$<$<COMPILE_LANGUAGE:CXX>:-fno-gnu-unique>")
"""
_LINK_TORCH = """target_compile_definitions(kernel PRIVATE Py_LIMITED_API=0x03090000)
target_link_libraries(kernel PRIVATE Python3::SABIModule)
if(GPU_LANG STREQUAL "CUDA")
  target_compile_definitions(kernel PRIVATE USE_CUDA=1)
  target_compile_options(kernel PRIVATE
    "$<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr;--expt-extended-lambda;-DENABLE_FP8>")
  # The CUDA runtime is linked statically, as CMake does by default and `kernforge build` too.
  target_include_directories(kernel SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
  target_link_libraries(kernel PRIVATE torch)
else()
  target_link_libraries(kernel PRIVATE ${TORCH_LIBRARIES})
endif()
"""
_LINK_TVM_FFI = """target_link_libraries(kernel PRIVATE tvm_ffi::header tvm_ffi::shared)
if(GPU_LANG STREQUAL "CUDA")
  target_include_directories(kernel SYSTEM PRIVATE ${CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES})
endif()
"""
# Headers of CUTLASS: those of the environment variable, or a clone of the release.
_CUTLASS = """
if(GPU_LANG STREQUAL "CUDA")
  if(DEFINED ENV{CUTLASS_SRC_DIR})
    set(cutlass_SOURCE_DIR "$ENV{CUTLASS_SRC_DIR}")
  else()
    include(FetchContent)
    FetchContent_Declare(cutlass GIT_REPOSITORY https://github.com/NVIDIA/cutlass.git
      GIT_TAG v@CUTLASS@ GIT_SHALLOW TRUE SOURCE_SUBDIR no-build)
    FetchContent_MakeAvailable(cutlass)
  endif()
  target_include_directories(kernel PRIVATE
    "${cutlass_SOURCE_DIR}/include" "${cutlass_SOURCE_DIR}/tools/util/include")
endif()
"""
_TAIL = """
configure_file(cmake/_ops.py.in "${CMAKE_LIBRARY_OUTPUT_DIRECTORY}/_ops.py" @ONLY)
"""


def text(manifest: Manifest, unique: str, cutlass: str = "") -> str:
    """Text of CMakeLists.txt.

    Args:
        unique: unique part of the project's op namespace.
        cutlass: release of CUTLASS that it depends on, such as ``3.8.0``; empty without one.
    """
    tvm_ffi = isinstance(manifest.framework, TvmFfi)
    parts = [
        _HEAD,
        _TVM_FFI if tvm_ffi else _TORCH,
        *_bounds(manifest),
        *([_CUDA] if "cuda" in manifest.general.backends else []),
        "\nset(sources)\n" + _backends(manifest),
        _TARGET,
        _LINK_TVM_FFI if tvm_ffi else _LINK_TORCH,
        *([_CUTLASS] if cutlass else []),
        _TAIL,
    ]
    words = {
        "PYTHON_NAME": manifest.general.python_name,
        "PACKAGE": units.package_dir(manifest).rstrip("/"),
        "LANGUAGES": " ".join(b.upper() for b in manifest.general.backends),
        "UNIQUE": unique,
        "CUTLASS": cutlass,
        "SUFFIX": ".so" if tvm_ffi else ".abi3.so",
        "NAME_DEFINE": "TVM_FFI_EXTENSION_NAME" if tvm_ffi else "TORCH_EXTENSION_NAME",
    }
    result = "".join(parts)
    for word, value in words.items():
        result = result.replace(f"@{word}@", value)
    return result


def _bounds(manifest: Manifest) -> Iterator[str]:
    """Refuse a torch version that build.toml excludes; set the stable ABI that it declares."""
    framework = manifest.framework
    if not isinstance(framework, Torch):
        return
    if framework.minver:
        yield _refuse(f"TORCH_VERSION VERSION_LESS {framework.minver}", "too old")
    if framework.maxver:
        # 2.12.1 belongs to 2.12.
        end = f"{framework.maxver[0]}.{framework.maxver[1] + 1}"
        yield _refuse(f"TORCH_VERSION VERSION_GREATER_EQUAL {end}", "too new")
    for backend in manifest.general.backends:
        if backend in {"cpu", "cuda"} and (oldest := framework.stable_abi_for(backend)):
            yield (
                f'if(GPU_LANG STREQUAL "{backend.upper()}")\n'
                f"  if(TORCH_VERSION VERSION_LESS {oldest})\n"
                '    message(FATAL_ERROR "torch ${TORCH_VERSION} is older than the stable ABI '
                f'{oldest}")\n  endif()\n'
                f"  add_compile_definitions({flags.stable_target(oldest)})\nendif()\n"
            )


def _refuse(condition: str, word: str) -> str:
    message = f'"torch ${{TORCH_VERSION}} is {word} for build.toml"'
    return f"if({condition})\n  message(FATAL_ERROR {message})\nendif()\n"


def _backends(manifest: Manifest) -> str:
    """The sources of the backend to build; other backends are refused."""
    lines = []
    word = "if"
    for backend in manifest.general.backends:
        if backend not in {"cpu", "cuda"}:
            continue
        lines.append(f'{word}(GPU_LANG STREQUAL "{backend.upper()}")')
        lines += _cuda(manifest) if backend == "cuda" else _sources(units.units(manifest, "cpu"))
        word = "elseif"
    refusal = '  message(FATAL_ERROR "build.toml has no sources for ${GPU_LANG}, or needs its SDK")'
    if not lines:
        return f"{refusal.strip()}\n"
    return "\n".join([*lines, "else()", refusal, "endif()"]) + "\n"


def _cuda(manifest: Manifest) -> Iterator[str]:
    bounds = manifest.general.cuda
    for limit, compare, age in (
        (bounds.minver, "VERSION_LESS", "old"),
        (
            bounds.maxver and Version2(bounds.maxver.major, bounds.maxver.minor + 1),
            "VERSION_GREATER_EQUAL",
            "new",
        ),
    ):
        if limit:
            yield f"  if(CMAKE_CUDA_COMPILER_VERSION {compare} {limit})"
            yield f'    message(FATAL_ERROR "this CUDA is too {age} for build.toml")'
            yield "  endif()"
    sections = [s for s in manifest.sections("cuda").values() if isinstance(s, CudaKernel)]
    edges = {*_EDGES, *(s.cuda_minver for s in sections if s.cuda_minver)}
    word = "if"
    for edge in sorted(edges, reverse=True):
        yield f"  {word}(CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL {edge})"
        yield from (f"  {line}" for line in _sources(units.units(manifest, "cuda", edge), edge))
        word = "elseif"
    yield "  endif()"


def _sources(sources: tuple[Unit, ...], cuda: Version2 | None = None) -> Iterator[str]:
    yield "  list(APPEND sources"
    yield from (f"    {_quoted(unit.path)}" for unit in sources)
    yield "  )"
    for unit in sources:
        options = [_escaped(flag) for flag in unit.flags]
        if unit.is_cuda and cuda is not None:
            yield f"  gencode(arch {' '.join(map(str, unit.archs(cuda)))})"
            options.append("${arch}")
        language = "" if unit.is_cuda else " LANGUAGE CXX"
        if unit.include:
            directories = ";".join(
                f"${{CMAKE_CURRENT_SOURCE_DIR}}/{_escaped(d)}" for d in unit.include
            )
            language += f' INCLUDE_DIRECTORIES "{directories}"'
        yield f"  set_source_files_properties({_quoted(unit.path)} PROPERTIES"
        yield f'   {language} COMPILE_OPTIONS "{";".join(options)}")'


def _escaped(text: str) -> str:
    for sign in ("\\", '"', "$", ";"):
        text = text.replace(sign, f"\\{sign}")
    return text


def _quoted(text: str) -> str:
    return f'"{_escaped(text)}"'

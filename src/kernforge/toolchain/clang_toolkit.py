# SPDX-License-Identifier: Apache-2.0
"""A toolkit of CUDA 12 made from wheels alone, in which clang stands in for nvcc.

NVIDIA's wheels of CUDA 12 have its headers, ``ptxas`` and ``libdevice``, but neither nvcc nor its
front end. What is lacking comes from elsewhere: clang from ``ziglang``, whose program is a whole
clang with its NVPTX back end; clang's own headers, those for CUDA among them, from ``clang-tidy``
of the same clang; ``fatbinary`` from CUDA 13's nvcc; and the static runtime from CUDA 12.9's
wheel, the only one of CUDA 12 that carries it, which serves every earlier 12. See
docs/decisions/0012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from packaging.specifiers import SpecifierSet

from kernforge.errors import ToolchainError
from kernforge.toolchain import projects, tree_names, wheel_pins
from kernforge.toolchain.lockfile import LockedClang, LockedToolkit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernforge.toolchain.index.wheels import Wheels
    from kernforge.toolchain.lockfile import LockedWheel

# The wheels of one clang: a program that fits no other's headers.
_RELEASE = "22.1.8"
_COMPILER = (projects.CLANG, "==0.17.0")
_HEADERS = (projects.CLANG_HEADERS, f"=={_RELEASE}")
# Whose wheels have the static runtime, and whose have fatbinary.
_RUNTIME_OF = "12.9"
_FATBINARY_OF = "13.0"
_METAPACKAGE = "cuda-toolkit"
_NVCC = "nvidia-cuda-nvcc"
_RUNTIME = "nvidia-cuda-runtime-cu12"
_ARCHIVE = "libcudart_static.a"

EMPTY_HEADER = f"{tree_names.CLANG_EMPTY}/curand_mtgp32_kernel.h"
"""The one header that clang always includes and that is cuRAND's."""


def resolve(version: str, wheels: Wheels, cpu: str, libraries: Sequence[str]) -> LockedToolkit:
    """Find the wheels of a toolkit.

    Args:
        version: of CUDA, as ``"12.8"``.
        libraries: projects of CUDA 13's libraries of which the headers are wanted.

    Raises:
        ToolchainError: no index has one of them.
        NetworkError: no index can be reached.
    """
    meta = wheel_pins.newest(wheels, _METAPACKAGE, version, cpu)
    pins = wheel_pins.pins(wheels, meta)

    def locked(project: str, specifier: SpecifierSet) -> LockedWheel:
        return wheel_pins.by_record(wheel_pins.matching(wheels, project, specifier, cpu), wheels)

    missing = [name for name in projects.TOOLKIT_12 if name not in pins]
    if missing:
        raise ToolchainError(
            f"CUDA {meta.version} has no package-index wheels of {', '.join(missing)}",
            hint="clang compiles for CUDA 12.6, 12.8 and 12.9",
        )
    clang = LockedClang(
        release=_RELEASE,
        compiler=locked(_COMPILER[0], SpecifierSet(_COMPILER[1])),
        headers=locked(_HEADERS[0], SpecifierSet(_HEADERS[1])),
        fatbinary=locked(_NVCC, _pinned(_FATBINARY_OF, _NVCC, wheels, cpu)),
        runtime=locked(_RUNTIME, _pinned(_RUNTIME_OF, _RUNTIME, wheels, cpu)),
    )
    names = wheels.parts(clang.runtime.file, clang.runtime.sha256).names()
    if not any(name.endswith(f"/{_ARCHIVE}") for name in names):
        raise ToolchainError(
            f"{clang.runtime.file} holds no {_ARCHIVE}",
            hint="use NVIDIA's redistributables (--cuda-redist) or a toolkit (--cuda-home)",
        )
    wanted = [f"{name}-cu12" for name in libraries if f"{name}-cu12" in pins]
    return LockedToolkit(
        release=str(meta.version),
        wheels=tuple(locked(name, pins[name]) for name in projects.TOOLKIT_12),
        libraries=tuple(locked(name, pins[name]) for name in wanted),
        clang=clang,
    )


def layout(toolkit: LockedToolkit) -> Iterator[tuple[LockedWheel, dict[str, str]]]:
    """What is taken of each wheel, as start of a member's name -> start of its path in the tree."""
    clang = toolkit.clang
    if clang is None:
        return
    for wheel in toolkit.wheels:
        component = wheel.file.partition("-")[0].removeprefix("nvidia_").removesuffix("_cu12")
        top = f"nvidia/{component}"
        yield (
            wheel,
            {
                f"{top}/include/": "include/",
                f"{top}/bin/ptxas": "bin/ptxas",
                f"{top}/nvvm/libdevice/": "nvvm/libdevice/",
            },
        )
    major = clang.release.partition(".")[0]
    yield clang.compiler, {"ziglang/zig": tree_names.CLANG}
    yield (
        clang.headers,
        {f"clang_tidy/data/lib/clang/{major}/include/": f"{tree_names.CLANG_RESOURCES}/include/"},
    )
    yield clang.fatbinary, {"nvidia/cu13/bin/fatbinary": "bin/fatbinary"}
    yield clang.runtime, {f"nvidia/cuda_runtime/lib/{_ARCHIVE}": f"lib64/{_ARCHIVE}"}


def placed(starts: dict[str, str], name: str) -> str:
    """Path in the tree of a wheel's member; empty for what is not taken."""
    for start, path in starts.items():
        if name == start or (start.endswith("/") and name.startswith(start) and name != start):
            return path + name.removeprefix(start)
    return ""


def _pinned(release: str, project: str, wheels: Wheels, cpu: str) -> SpecifierSet:
    """Which version of a project another CUDA release pins."""
    pins = wheel_pins.pins(wheels, wheel_pins.newest(wheels, _METAPACKAGE, release, cpu))
    if project not in pins:
        raise ToolchainError(f"CUDA {release} has no package-index wheel of {project}")
    return pins[project]

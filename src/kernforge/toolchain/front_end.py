# SPDX-License-Identifier: Apache-2.0
"""A toolkit of CUDA 12 made from wheels alone: NVIDIA's own front end of CUDA 13, the rest of 12.

NVIDIA's wheels of CUDA 12 have its headers, ``ptxas`` and ``libdevice``, but neither nvcc nor its
front end. Those come from the wheels of CUDA 13.0, which compile for CUDA 12 when three things are
said otherwise: the PTX names the version that the older ``ptxas`` reads, the headers see the macros
of the older nvcc, and the host code that ``cudafe++`` writes finds the header that goes with it.
The static runtime is that of CUDA 12.9, whose wheel alone has it and which serves every earlier 12.
See decision 8 in docs/decisions.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib import resources

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.errors import ManifestError, ToolchainError
from kernforge.toolchain import cuda_arch
from kernforge.toolchain.lockfile import LockedTree, LockedWheel

FRONT_END_OF, RUNTIME_OF = "13.0", "12.9"
"""Whose wheels have the front end, and whose have the static runtime."""
RUNTIME = "libcudart_static.a"
# PTX that the front end writes, and that each CUDA 12 reads (PTX ISA, "Release Notes").
_PTX = "9.0"
_PTX_OF = {Version2(12, 6): "8.5", Version2(12, 8): "8.7", Version2(12, 9): "8.8"}
TOOLKITS = tuple(_PTX_OF)
"""CUDA versions that are compiled for in this way."""

_LINKED_LATER = re.compile(
    r"-?-(?:rdc|relocatable-device-code)(?:=true)?|-?-(?:dc|device-c|dw|device-w|dlink|device-link"
    r"|dlto|dlink-time-opt|lto)|.*code=\[?(?:.*,)?lto_.*"
)
_RELOCATABLE = ("-rdc", "--relocatable-device-code", "-relocatable-device-code")
_NAMED = re.compile(r"\b(?:compute|sm)_(\d{2,3})")
OTHER_TOOLKIT = "name an installed toolkit in KERNFORGE_CUDA_HOME"
"""What to do where the wheels' toolkit does not serve."""
_PTXAS = re.compile(r"nvidia_cuda_nvcc_cu12-(\d+\.\d+\.\d+)-")
# What nvcc 13 does unasked and nvcc 12 did not: the names that a manifest may ask by.
_CHANGED_DEFAULTS = {
    "-static-global-template-stub=false": "static-global-template-stub",
    "-device-entity-has-hidden-visibility=false": "device-entity-has-hidden-visibility",
}
# The way in which CUDA 12's fatbinary compresses, which that of 13 has as an option.
_COMPRESSION = "-Xfatbin=--compress-mode=speed"

# Texts of the tree that no wheel has, by path, in ``data/front_end``.
_TEXTS = {
    "bin/nvcc": "nvcc.sh",
    "bin/nvcc.profile": "nvcc.profile",
    "bin/version.txt": "version.txt",
    "front_end/cuda_runtime.h": "cuda_runtime.h",
    "nvvm/bin/cicc": "cicc.sh",
}


def layout(toolkit: LockedTree) -> Iterator[tuple[LockedWheel, dict[str, str]]]:
    """What is taken of each wheel, as start of a member's name -> start of its path in the tree."""
    front = toolkit.front_end
    if front is None:
        return
    for wheel in toolkit.wheels:
        component = wheel.file.partition("-")[0].removeprefix("nvidia_").removesuffix("_cu12")
        top = f"nvidia/{component}"
        yield (
            wheel,
            {
                f"{top}/include/crt/host_runtime.h": "",
                f"{top}/include/": "include/",
                f"{top}/bin/ptxas": "bin/ptxas",
                f"{top}/nvvm/libdevice/": "nvvm/libdevice/",
            },
        )
    top = "nvidia/cu13"
    programs = {f"{top}/bin/{name}": f"bin/{name}" for name in ("cudafe++", "fatbinary")}
    yield front.compiler, {**programs, f"{top}/bin/nvcc": f"bin/nvcc-{FRONT_END_OF}"}
    yield front.optimizer, {f"{top}/nvvm/bin/cicc": f"nvvm/bin/cicc-{FRONT_END_OF}"}
    header = "include/crt/host_runtime.h"
    yield front.headers, {f"{top}/{header}": header}
    yield front.runtime, {f"nvidia/cuda_runtime/lib/{RUNTIME}": f"lib64/{RUNTIME}"}


def placed(starts: dict[str, str], name: str) -> str:
    """Path in the tree of a wheel's member; empty for what is not taken."""
    for start, path in starts.items():
        if name == start:
            return path
        if start.endswith("/") and name.startswith(start):
            return path + name.removeprefix(start)
    return ""


def texts(toolkit: LockedTree) -> dict[str, str]:
    """The files of the tree that no wheel has, by path."""
    cuda, front = Version2.leading(toolkit.release), toolkit.front_end
    # The version of ptxas, as 12.8.93: what a whole nvcc of that release has too.
    releases = [m[1] for wheel in toolkit.wheels if (m := _PTXAS.match(wheel.file))]
    ptxas = releases[0] if len(releases) == 1 else ""
    known = front is not None and str(Version2.leading(front.release)) == FRONT_END_OF
    if not known or cuda not in _PTX_OF or not ptxas:
        raise ToolchainError(
            f"the lock compiles CUDA {toolkit.release} with the front end of "
            f"{front.release if front else 'none'} and ptxas of {ptxas or 'no wheel'}; kernforge "
            f"makes {', '.join(map(str, TOOLKITS))} with that of {FRONT_END_OF}",
            hint="write the lock again with `kernforge lock`",
        )
    words = {
        "front": FRONT_END_OF,
        "cuda": str(cuda),
        "major": str(cuda.major),
        "minor": str(cuda.minor),
        "release": ptxas,
        "build": ptxas.rpartition(".")[2],
        "written": _PTX,
        "read": _PTX_OF[cuda],
    }
    folder = resources.files("kernforge") / "data" / "front_end"
    return {path: (folder / n).read_text().format_map(words) for path, n in _TEXTS.items()}


def nvcc_flags(toolkit: LockedTree, given: Sequence[str], source: str) -> tuple[str, ...]:
    """Flags that a toolkit's nvcc gets before all others; none for one that is of one CUDA.

    Args:
        source: what they are given for, as an error names it.
    """
    if toolkit.front_end:
        refuse_device_link(given, source, toolkit.release)
    named = {Version2(int(n[:-1]), int(n[-1])) for word in given for n in _NAMED.findall(word)}
    if lacking := sorted(each for each in named if not cuda_arch.compiles(_nvcc(toolkit), each)):
        gpus = ", ".join(map(str, lacking))
        raise ToolchainError(
            f"{source} is compiled for {gpus}, and {_label(toolkit)} has no code for GPUs "
            "of that compute capability",
            hint="take them out of the flags (for a setup.py, TORCH_CUDA_ARCH_LIST=9.0 leaves "
            f"one), or {OTHER_TOOLKIT}",
        )
    if not toolkit.front_end:
        return ()
    return usual_flags(given)


def usual_flags(words: Sequence[str]) -> tuple[str, ...]:
    """Flags that make nvcc 13 do what nvcc 12 does unasked, but for what was asked otherwise."""
    words_for_nvcc = (
        flag
        for flag, name in _CHANGED_DEFAULTS.items()
        if not any(word.lstrip("-").partition("=")[0] == name for word in words)
    )
    return (
        *words_for_nvcc,
        *(() if any("--compress-mode" in word for word in words) else (_COMPRESSION,)),
    )


def refuse_device_link(given: Sequence[str], source: str, cuda: str) -> None:
    """Refuse flags of code that a device linker finishes: that of CUDA 12 is in no wheel."""
    for flag, following in itertools.zip_longest(given, given[1:], fillvalue=""):
        if not _LINKED_LATER.fullmatch(flag) or (flag in _RELOCATABLE and following == "false"):
            continue
        raise ToolchainError(
            f"{source} is compiled with {flag!r}, and no wheel has the device linker of CUDA "
            f"{cuda}",
            hint=f"{OTHER_TOOLKIT}; or build for CUDA 13",
        )


def compiled_as(arch: Arch) -> Arch | None:
    """The architecture that the front end compiles for in the place of one; None for none.

    Code for a GPU before 7.5 that later GPUs would run too is made for 7.5.
    """
    return cuda_arch.compiled_as(arch, Version2.parse(FRONT_END_OF))


def require(toolkit: LockedTree, archs: Iterable[Arch]) -> None:
    """Refuse GPUs that a toolkit has no code for."""
    lacking = [str(a) for a in archs if not cuda_arch.compiles(_nvcc(toolkit), a.capability)]
    if lacking:
        raise ToolchainError(
            f"{_label(toolkit)} has no code for GPUs of compute capability {', '.join(lacking)}",
            hint="name others in TORCH_CUDA_ARCH_LIST, or an installed toolkit that has it: "
            "KERNFORGE_CUDA_HOME for setup.py projects, CUDA_HOME for kernforge.load",
        )


def _nvcc(toolkit: LockedTree) -> Version2:
    """CUDA version of a toolkit's nvcc."""
    release = FRONT_END_OF if toolkit.front_end else toolkit.release
    return Version2.leading(release) or Version2.parse(FRONT_END_OF)


def _label(toolkit: LockedTree) -> str:
    """A toolkit, as messages name it."""
    whose = "the wheels' compiler for " if toolkit.front_end else ""
    return f"{whose}CUDA {toolkit.release}"


def supported(archs: Sequence[Arch], cuda: Version2) -> tuple[Arch, ...]:
    """What the front end compiles for in the place of some architectures."""
    supported_archs = cuda_arch.merged(served for arch in archs if (served := compiled_as(arch)))
    if not supported_archs:
        raise ManifestError(
            f"the wheels' compiler for CUDA {cuda} has no {', '.join(map(str, archs))}: it "
            "compiles for 7.5 and later, and not for 10.1",
            hint="name an installed toolkit of that CUDA in KERNFORGE_CUDA_HOME, or other "
            "cuda-capabilities",
        )
    return supported_archs

# SPDX-License-Identifier: Apache-2.0
"""Plans the compilation of a CUDA unit's device code alone, for an edit that leaves its host code.

There are two ways, both with the unit's own flags: nvcc's device stages (``nvcc -cubin``), and
NVRTC, which is given the text without the host's part. NVRTC has no C++ library: a source that uses
it, another library, or a function that the C++ library overloads, is left to nvcc.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from kernforge.build.plan.graph import ActionSet
from kernforge.jit.device import lambdas, tokens
from kernforge.jit.device import split as device_split
from kernforge.project.units import Sources
from kernforge.source import includes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from kernforge.build.plan.graph import Action
    from kernforge.jit.device.split import Split
    from kernforge.jit.device.units import CudaUnit
    from kernforge.project.targets import Target
    from kernforge.toolchain.lockfile import Lock

    SplitText = Callable[..., Split | None]

CUBIN = "unit.cubin"
_GENCODE = re.compile(r"arch=compute_(\w+),code=sm_(\w+)")
# What makes the object more than one piece of code, or its code depend on the whole program.
_NO_PART = re.compile(r"-?-(?:rdc|relocatable-device-code|dc|dlto|lto|dw|dlink|cudart)\b")
# Headers beyond this are taken as they are: reading them would take longer than it saves.
_READ_BYTES = 400_000
# Headers of the toolkit that NVRTC reads from there, and those that it does without.
_FROM_TOOLKIT = (
    *("cuda_bf16.h", "cuda_fp16.h", "cuda_fp8.h", "math_constants.h", "mma.h"),
    *("cooperative_groups.h", "cuda_pipeline.h"),
)
_INTEGERS = "".join(
    f"typedef {sign}{kind} {'u' if sign else ''}int{bits}_t;\n"
    for bits, kind in ((8, "char"), (16, "short"), (32, "int"), (64, "long"))
    for sign in ("", "unsigned ")
).replace("typedef char", "typedef signed char")
_SYNCHRONIZE = """#pragma once
static inline __device__ void cudaGridDependencySynchronize() {
  asm volatile("griddepcontrol.wait;" ::: "memory");
}
"""
_STAND_INS = MappingProxyType(
    {
        **dict.fromkeys(("cstdint", "stdint.h"), f"#pragma once\n{_INTEGERS}"),
        "cuda_device_runtime_api.h": _SYNCHRONIZE,
        **dict.fromkeys(
            (
                *("cuda.h", "cuda_runtime.h", "cuda_runtime_api.h", "device_launch_parameters.h"),
                *("algorithm", "array", "cassert", "cfloat", "climits", "cmath", "cstddef"),
                *(
                    "cstdio",
                    "cstdlib",
                    "cstring",
                    "functional",
                    "iostream",
                    "limits",
                    "memory",
                    "optional",
                ),
                *("sstream", "stdexcept", "string", "tuple", "type_traits", "utility", "vector"),
                *("assert.h", "float.h", "limits.h", "math.h", "stddef.h", "stdio.h", "stdlib.h"),
                "string.h",
            ),
            "",
        ),
    }
)
# Calls that the C++ library decides by the types of all arguments, and NVRTC otherwise; macros of
# the C library; what distinguishes the compilers.
_NOT_ALIKE = re.compile(
    r"std|pow|fmod|remainder|remquo|fma|fmax|fmin|fdim|atan2|hypot|copysign|nextafter|nexttoward"
    r"|lerp|div|ldiv|lldiv|isgreater\w*|isless\w*|isunordered|M_[A-Z0-9_]+|NAN|INFINITY|HUGE_VAL\w*"
    r"|(?:U?(?:CHAR|SHRT|INT|LONG|LLONG)|FLT|DBL|SIZE)_\w+|__CUDACC_(?!_)\w+|__NVCC\w*|__GNUC\w*|__has_\w+"
    r"|__FILE__|__linux__|__x86_64__|__cplusplus|NULL|__int128\w*|__float128"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_UNNAMED = re.compile(r"(?<!\w)(?:inline\s+)?namespace\s*\{")
_IGNORED = re.compile(
    r"-c|-O[0-3]|-?-expt-relaxed-constexpr|-?-(?:expt-)?extended-lambda|-ccbin=.*|-?-threads=.*|-w|-Wall"
    r"|--keep|--keep-dir=.*|-static-global-template-stub=\w+|-Xfatbin=--compress-mode=speed"
    r"|-device-entity-has-hidden-visibility=\w+"
)
_PASSED = re.compile(
    r"-[DU]\w.*|-std=c\+\+(?:14|17|20)|-?-(?:use_fast_math|maxrregcount=\d+)"
    r"|-?-(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceProgram:
    """What NVRTC is given.

    Attributes:
        name: the unit's path, as nvcc gets it.
        text: of the unit, without the host's part.
        headers: texts by the name with which they are included.
        options: the unit's; a path of the toolkit begins with ``%{root}``.
    """

    name: str
    text: str
    headers: Mapping[str, str]
    options: tuple[str, ...]

    def naming(self, unnamed: str) -> DeviceProgram:
        """The same with unnamed namespaces named as another compiler named them.

        NVRTC names them after its process, and names are part of the code.
        """
        if not unnamed:
            return self
        named = functools.partial(_UNNAMED.sub, f"inline namespace {unnamed} {{")
        headers = {name: named(text) for name, text in self.headers.items()}
        return replace(self, text=named(self.text), headers=headers)

    def instantiating(self, lines: str) -> DeviceProgram:
        """The same with more lines at its end: templates that the host's part had instantiated."""
        return replace(self, text=f"{self.text}\n{lines}") if lines else self


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The device code of a unit.

    Attributes:
        host: key of the host's part with all that decides its code; units that share it differ in
            device code alone.
        cubin: nvcc's device stages, as an action.
        texts: files of that action by content, as a plan holds them.
        program: for NVRTC; None if NVRTC may not give what nvcc gives.
    """

    host: str
    cubin: Action
    texts: Mapping[str, str]
    program: DeviceProgram | None


def device_part(
    unit: CudaUnit, lock: Lock, target: Target, split: SplitText = device_split.split
) -> DevicePart | None:
    """Plan the compilation of a unit's device code; ``split`` is ``split.split``, or with a memory.

    Returns:
        None where device code cannot be told from host code for certain.
    """
    argv = unit.action.argv
    if sum(1 for word in argv if _GENCODE.fullmatch(word)) != 1 or "-gencode" not in argv:
        return None
    if any(_NO_PART.match(word) for word in argv) or sum("code=" in word for word in argv) != 1:
        return None
    macros = frozenset().union(*(tokens.macros(text) for text in unit.texts.values()))
    known = {*_FROM_TOOLKIT, *_STAND_INS}
    exact = unit.opaque or any(name not in known for name in unit.foreign)
    # A flag that is not known may put line numbers into the object.
    options = _options(argv, unit)
    exact = exact or options is None
    parts = _split_unit(unit, macros, split, exact=exact)
    if parts[unit.path] is None:
        return None
    hosts = {p: part.host if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    shadow = ActionSet(Sources(digests={}, texts={}, bundled={}), lock)
    inputs = [shadow.text(path, text) for path, text in hosts.items()]
    host = shadow.add("host", argv, inputs, unit.action.outputs, target)
    alone = ActionSet(Sources(digests={}, texts={}, bundled={}), lock)
    inputs = [alone.text(path, text) for path, text in unit.texts.items()]
    words = ["-cubin" if word == "-c" else word for word in argv[:-1]]
    cubin = alone.add(f"{unit.path} (device code)", (*words, CUBIN), inputs, (CUBIN,), target)
    devices = {p: part.device if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    program = None if exact or options is None else _program(unit, devices, options)
    return DevicePart(host=host.key, cubin=cubin, texts=alone.texts, program=program)


def _split_unit(
    unit: CudaUnit, macros: frozenset[str], split: SplitText, *, exact: bool
) -> dict[str, Split | None]:
    """The parts of each of a unit's texts; None for one that cannot be split for certain.

    A function that is declared for the host too is for both, whatever its definition says: the
    declaration may be in another file.
    """
    small = sum(map(len, unit.texts.values())) < _READ_BYTES
    read = {p: text for p, text in unit.texts.items() if small or p == unit.path}
    parts = {path: split(text, macros, exact=exact) for path, text in read.items()}
    alone: set[str] = set().union(*(part.alone for part in parts.values() if part))
    shared: set[str] = set()
    for path, text in unit.texts.items():
        part = parts.get(path)
        shared |= alone & (part.shared if part else set(_WORD.findall(text)))
    if not shared:
        return parts
    both = frozenset(shared)
    return {path: split(text, macros, both, exact=exact) for path, text in read.items()}


def _program(
    unit: CudaUnit, devices: Mapping[str, str], options: list[str]
) -> DeviceProgram | None:
    if any(_NOT_ALIKE.fullmatch(w) for text in devices.values() for w in tokens.words(text)):
        return None
    users: dict[str, str] = {}
    for path in devices:
        for name, paths in includes.named(path, unit.texts, unit.includes).items():
            texts = {devices[each] for each in paths}
            if name in users:
                texts.add(users[name])
            if len(texts) > 1:
                return None  # one name, several files
            users |= dict.fromkeys([name] if texts else [], "".join(texts))
    headers = {**_STAND_INS, **users}
    return DeviceProgram(
        name=unit.path, text=devices[unit.path], headers=headers, options=tuple(options)
    )


def _options(argv: tuple[str, ...], unit: CudaUnit) -> list[str] | None:
    """NVRTC's options for nvcc's; None if one of them is not known to mean the same."""
    root = argv[0].partition("/")[0]
    options = [f"-I{root}/include", f"-I{root}/include/cccl"]
    users = {f"-I{directory}" for directory in unit.includes}
    words: Iterator[str] = iter(argv[1:-3])  # the rest are the unit, -o and the object
    for word in words:
        if word == "-gencode":
            arch = _GENCODE.fullmatch(next(words, ""))
            if not arch or arch[1] != arch[2]:
                return None
            options.append(f"-arch=sm_{arch[2]}")
        elif word in lambdas.HOST_FLAGS:
            if not lambdas.HOST_FLAGS[word].fullmatch(next(words, "")):
                return None
        elif _PASSED.fullmatch(word):
            options.append(word)
        elif not _IGNORED.fullmatch(word) and word not in users:
            return None
    return options

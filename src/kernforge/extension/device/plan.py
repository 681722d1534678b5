# SPDX-License-Identifier: Apache-2.0
"""Device code of a CUDA unit, and its compilation alone, for an edit that leaves the host's code.

It is compiled by nvcc's device stages (``nvcc -cubin``) with the unit's own flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernforge.binary import cubin
from kernforge.builder.plan.graph import Action, ActionSet
from kernforge.extension.device import split as device_split
from kernforge.extension.device.split import Split
from kernforge.extension.device.units import SLIM_DIRECTORY, CudaUnit
from kernforge.project.targets import Target
from kernforge.toolchain.lockfile import Lock

SplitText = Callable[..., Split | None]

CUBIN = "unit.cubin"
_GENCODE = re.compile(r"arch=compute_(\w+),code=sm_(\w+)")
# What makes the object more than one piece of code, or its code depend on the whole program.
_NO_PART = re.compile(r"-?-(?:rdc|relocatable-device-code|dc|dlto|lto|dw|dlink|cudart)\b")
# Headers beyond this are taken as they are: reading them would take longer than it saves.
_READ_BYTES = 400_000
# Headers without macros that put line numbers into host code, but for those that split looks for.
_PLAIN_HEADER = re.compile(
    r"[a-z_]+|(?:assert|float|limits|math|stddef|stdint|stdio|stdlib|string)\.h"
    r"|cuda(?:_\w+)?\.h|(?:math_constants|mma|cooperative_groups|device_launch_parameters)\.h"
)
# Flags that put line numbers, or what comes of them, into the object.
_LINE_FLAG = re.compile(r"(?:^|.*[,=])-(?:g|G|pg)|.*(?:debug|line-?info|coverage|sanitize|profile)")
_WORD = re.compile(r"[A-Za-z_]\w*")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if(?:n?def)?\b(.*)", re.MULTILINE)
_KNOWN = frozenset({"defined", "__CUDA_ARCH__", "__CUDACC__", "__cplusplus"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The device code of a unit.

    Attributes:
        host: key of the host's part with all that decides its code; units that share it differ in
            device code alone.
        bare: files of the unit by path, without torch's headers and what the host alone needs: a
            tenth of the time. Empty where other code might come of them.
    """

    host: str
    bare: Mapping[str, str]


def device_part(
    unit: CudaUnit, lock: Lock, target: Target, split: SplitText = device_split.split
) -> DevicePart | None:
    """Tell a unit's device code from its host code; ``split`` is ``split.split``, or with a memory.

    Returns:
        None where device code cannot be told from host code for certain.
    """
    argv = unit.action.argv
    if sum(1 for word in argv if _GENCODE.fullmatch(word)) != 1 or "-gencode" not in argv:
        return None
    if any(_NO_PART.match(word) for word in argv) or sum("code=" in word for word in argv) != 1:
        return None
    macros = frozenset().union(*(device_split.macros(text) for text in unit.texts.values()))
    exact = (
        unit.closure.opaque
        or not all(map(_PLAIN_HEADER.fullmatch, unit.closure.foreign))
        or any(_LINE_FLAG.match(word) for word in argv if not word.startswith("-gencode"))
    )
    parts = _split_unit(unit, macros, split, exact=exact)
    if parts[unit.path] is None:
        return None
    hosts = {p: part.host if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    shadow = ActionSet(lock)
    inputs = [shadow.text(path, text) for path, text in hosts.items()]
    host = shadow.add("host", argv, inputs, unit.action.outputs, target, kind="cuda")
    return DevicePart(host=host.key, bare=_bare_texts(unit, parts))


def compile_device(
    unit: CudaUnit, texts: Mapping[str, str], lock: Lock, target: Target
) -> tuple[Action, Mapping[str, str]]:
    """Plan nvcc's device stages for these files of a unit by path, and the files by content."""
    alone = ActionSet(lock)
    inputs = [alone.text(path, text) for path, text in texts.items()]
    words = ["-cubin" if word == "-c" else word for word in unit.action.argv[:-1]]
    title = f"{unit.path} (device code)"
    action = alone.add(title, (*words, CUBIN), inputs, (CUBIN,), target, kind="cuda")
    return action, alone.texts


def library_constants(code: bytes) -> str:
    """Declarations of the empty constants of CCCL in a cubin, for a text without its headers.

    torch's headers bring them, and the host registers them by name.
    """
    lines = []
    for name, size in sorted(cubin.variables(code).items()):
        words = _nested_names(name)
        if size != 1 or not words or words[0] not in {"cuda", "thrust", "cub"}:
            continue
        *spaces, constant = ("" if word.startswith("_GLOBAL__N_") else word for word in words)
        opened = " ".join(f"namespace {space} {{" for space in spaces)
        lines.append(
            f"{opened} static constexpr __device__ char {constant}[1] = {{}}; {'}' * len(spaces)}\n"
        )
    return "".join(lines)


def _nested_names(mangled: str) -> list[str]:
    """The namespaces and the name of an internal variable, as the Itanium C++ ABI mangles them."""
    words, at = [], len("_ZN")
    while mangled.startswith("_ZN") and (length := re.match(r"\d+", mangled[at:])):
        begin = at + length.end()
        at = begin + int(length[0])
        words.append(mangled[begin:at])
    internal = words and words[0].startswith("_INTERNAL_") and mangled[at:] == "E"
    return words[1:] if internal else []


def _bare_texts(unit: CudaUnit, parts: Mapping[str, Split | None]) -> dict[str, str]:
    """A unit's texts for the GPU, without torch's headers.

    What the GPU's code needs of them does not compile then. A macro would be missed silently: a
    unit that asks for one that is not its own has no such texts. Nor has one without these headers,
    or with others that bring CCCL.
    """
    heads = {name.partition("/")[0] for name in unit.closure.foreign}
    if not heads & {"torch", "ATen", "c10", "pybind11"} or heads & {"cuda", "thrust", "cub"}:
        return {}
    texts = {}
    for path, text in unit.texts.items():
        part = parts.get(path)
        is_torchs = path.startswith(f"{SLIM_DIRECTORY}/")
        texts[path] = device_split.QUIET + "\n" if is_torchs else part.device if part else text
    own = frozenset().union(*map(device_split.macros, texts.values()))
    asked = {
        word
        for text in texts.values()
        for condition in _CONDITION.findall(text)
        for word in _WORD.findall(condition)
    }
    return texts if asked <= own | _KNOWN else {}


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

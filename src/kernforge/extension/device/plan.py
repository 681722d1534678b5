# SPDX-License-Identifier: Apache-2.0
"""Plans the compilation of a CUDA unit's device code alone, for an edit that leaves its host code.

It is compiled by nvcc's device stages (``nvcc -cubin``) with the unit's own flags.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kernforge.builder.plan.graph import Action, ActionSet
from kernforge.extension.device import split as device_split
from kernforge.extension.device import tokens
from kernforge.extension.device.split import Split
from kernforge.extension.device.units import CudaUnit
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
# Flags that put no line numbers into the object.
_PLAIN_FLAG = re.compile(
    r"-c|-O[0-3]|-w|-Wall|-[DUI].*|-?-std=.*|-?-expt-relaxed-constexpr|-?-(?:expt-)?extended-lambda"
    r"|-ccbin=.*|-?-threads=.*|-gencode|arch=.*|-?-keep(?:-dir=.*)?|-static-global-template-stub=\w+"
    r"|-device-entity-has-hidden-visibility=\w+|-Xfatbin=--compress-mode=speed|-Xcudafe|--diag_suppress=.*"
    r"|-Xcompiler|(?:,?-f(?:PIC|no-gnu-unique|no-canonical-system-headers))+"
    r"|-?-(?:use_fast_math|maxrregcount=\d+)|-?-(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)"
)
_WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(frozen=True, slots=True, kw_only=True)
class DevicePart:
    """The device code of a unit.

    Attributes:
        host: key of the host's part with all that decides its code; units that share it differ in
            device code alone.
        cubin: nvcc's device stages, as an action.
        texts: files of that action by content, as a plan holds them.
    """

    host: str
    cubin: Action
    texts: Mapping[str, str]


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
    exact = (
        unit.opaque
        or not all(map(_PLAIN_HEADER.fullmatch, unit.foreign))
        or not all(
            map(_PLAIN_FLAG.fullmatch, argv[1:-3])
        )  # the rest are the unit, -o and the object
    )
    parts = _split_unit(unit, macros, split, exact=exact)
    if parts[unit.path] is None:
        return None
    hosts = {p: part.host if (part := parts.get(p)) else t for p, t in unit.texts.items()}
    shadow = ActionSet(lock)
    inputs = [shadow.text(path, text) for path, text in hosts.items()]
    host = shadow.add("host", argv, inputs, unit.action.outputs, target, kind="cuda")
    alone = ActionSet(lock)
    inputs = [alone.text(path, text) for path, text in unit.texts.items()]
    words = ["-cubin" if word == "-c" else word for word in argv[:-1]]
    cubin = alone.add(
        f"{unit.path} (device code)", (*words, CUBIN), inputs, (CUBIN,), target, kind="cuda"
    )
    return DevicePart(host=host.key, cubin=cubin, texts=alone.texts)


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

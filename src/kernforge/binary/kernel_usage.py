# SPDX-License-Identifier: Apache-2.0
"""Registers, spills, shared memory and occupancy of the kernels in an object or a shared object.

They are read from the machine code. ``-Xptxas -v`` would change the keys and bytes of a build,
because a cubin contains the command line of its compilation; and it cannot examine other builds.

The rule of occupancy is that of NVIDIA's ``cuda_occupancy.h`` (CUDA 13.0), for a device in its
default state: the L1 cache leaves the largest possible part to shared memory, and a kernel may opt
into the larger limit of shared memory for a block.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib import resources
from typing import Any

from kernforge.binary import cubin, fatbin, symbols
from kernforge.binary.cubin import FunctionUsage

_WARP = 32
_PARTITIONS = 4
_REGISTERS = 65536  # of an SM, and the limit of a block
_REGISTERS_THREAD = 256
_REGISTERS_UNIT = 256  # registers of a warp are allocated in multiples of this
THREADS_BLOCK = 1024
_BLOCKS = (128, 256, 512, 1024)
HEAD = (
    "kernel",
    "arch",
    "registers",
    "spills",
    "stack",
    "shared",
    "occupancy by threads of a block",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Resources of one SM of a compute capability.

    Attributes:
        warps: largest number of resident warps.
        blocks: largest number of resident blocks.
        barriers: number of barriers for all resident blocks; 0 if barriers are not a limit.
        shared: shared memory in bytes.
        shared_block: shared memory in bytes that a block may opt into.
        granule: unit of allocation of shared memory in bytes.
        reserved: shared memory in bytes that the driver reserves for every block.
    """

    warps: int
    blocks: int
    barriers: int
    shared: int
    shared_block: int
    granule: int
    reserved: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupancy:
    """Occupancy of an SM by a launch.

    Attributes:
        blocks: resident blocks; 0 if the launch is not possible.
        share: resident warps as a fraction of the SM's limit.
        limits: resources that allow no more blocks: ``registers``, ``shared memory``, ``warps``,
            ``blocks``, ``barriers``.
    """

    threads: int
    blocks: int
    warps: int
    share: float
    limits: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """One function for one architecture.

    Attributes:
        name: demangled name, with namespaces, template arguments and parameters.
        arch: compute capability, such as ``9.0``.
        fills: occupancy without dynamic shared memory, at the declared block size
            (``__block_size__`` or ``__launch_bounds__``) or at some usual block sizes; empty for a
            function that is not a kernel, and if the limits of the capability are unknown.
    """

    name: str
    arch: str
    use: FunctionUsage
    fills: tuple[Occupancy, ...]

    @property
    def short(self) -> str:
        """The name without return type, parameters and anonymous namespaces."""
        text = self.name.replace("(anonymous namespace)::", "").removeprefix("void ")
        depth = 0
        for position, letter in enumerate(text):
            depth += (letter == "<") - (letter == ">")
            if letter == "(" and not depth:
                return text[:position]
        return text


def read(data: bytes) -> tuple[Kernel, ...]:
    """The kernels of an object or a shared object, sorted by name, then architecture.

    A function that kernels call is included if it has a stack.
    """
    kernels: dict[tuple[str, str], Kernel] = {}
    for name, code in fatbin.cubins(data):
        for use in cubin.uses(code, int(name.partition(".")[0])):
            if use.kernel or use.stack:
                kernels.setdefault((use.symbol, name), _kernel(use, name))
    return tuple(sorted(kernels.values(), key=lambda kernel: (kernel.name, _number(kernel.arch))))


def _kernel(use: FunctionUsage, arch: str) -> Kernel:
    limits = limits_of(arch) if use.kernel else None
    declared = use.required or use.threads
    fills = tuple(
        occupancy(
            limits,
            threads=threads,
            registers=use.registers,
            shared=use.shared,
            barriers=use.barriers,
        )
        for threads in ((declared,) if declared else _BLOCKS)
        if limits is not None
    )
    return Kernel(name=symbols.demangled(use.symbol), arch=arch, use=use, fills=fills)


def _number(arch: str) -> tuple[int, str]:
    major, _, minor = arch.partition(".")
    return int(major) * 10 + int(minor.rstrip("af")), arch


def document(kernel: Kernel) -> dict[str, Any]:
    """A kernel as JSON values."""
    return {
        "name": kernel.name,
        "arch": kernel.arch,
        **asdict(kernel.use),
        "occupancy": [asdict(occupancy) for occupancy in kernel.fills],
    }


def rows(kernels: Iterable[Kernel]) -> list[tuple[str, ...]]:
    """Rows of the table of kernels, whose head is ``HEAD``."""
    return [
        (
            kernel.short,
            kernel.arch,
            str(kernel.use.registers),
            _spills(kernel.use),
            _bytes(kernel.use.stack),
            _bytes(kernel.use.shared),
            ", ".join(map(_filled, kernel.fills)),
        )
        for kernel in kernels
    ]


def _spills(use: FunctionUsage) -> str:
    if use.spill_stores is None or use.spill_loads is None:
        return "not known"
    if not use.spill_stores + use.spill_loads:
        return "0"
    return f"{use.spill_stores} B out, {use.spill_loads} B in"


def _bytes(count: int) -> str:
    return f"{count} B" if count else "0"


def _filled(occupancy: Occupancy) -> str:
    if not occupancy.blocks:
        return f"{occupancy.threads}: none fits ({', '.join(occupancy.limits)})"
    reason = "" if occupancy.share == 1 else f" ({', '.join(occupancy.limits)})"
    return f"{occupancy.threads}: {occupancy.share:.0%}{reason}"


@functools.cache
def limits_table() -> Mapping[str, Limits]:
    """Limits by compute capability, such as ``9.0``."""
    text = resources.files("kernforge").joinpath("data/occupancy.json").read_text()
    known = json.loads(text)["capabilities"]
    return {name: Limits(**values) for name, values in known.items()}


def limits_of(arch: str) -> Limits | None:
    """Limits of an architecture such as ``9.0``, ``9.0a`` or ``10.0f``; None if unknown."""
    return limits_table().get(arch.rstrip("af"))


def occupancy(
    sm: Limits, *, threads: int, registers: int, shared: int, barriers: int = 0
) -> Occupancy:
    """Blocks of a kernel on one SM.

    Args:
        threads: threads of a block.
        registers: registers of a thread.
        shared: shared memory of a block in bytes, static and dynamic.
    """
    warps = -(-threads // _WARP)
    most = {
        "warps": sm.warps // warps if threads <= THREADS_BLOCK else 0,
        "blocks": sm.blocks,
        "registers": _by_registers(registers, warps),
        "shared memory": _by_shared(sm, shared),
    }
    if sm.barriers and barriers:
        most["barriers"] = sm.barriers // barriers
    blocks = min(most.values())
    return Occupancy(
        threads=threads,
        blocks=blocks,
        warps=blocks * warps,
        share=blocks * warps / sm.warps,
        limits=tuple(name for name, count in most.items() if count == blocks),
    )


def _by_registers(registers: int, warps: int) -> int:
    warp = _rounded(registers * _WARP, _REGISTERS_UNIT)
    # The hardware checks a block as if its warps were spread evenly over the SM's partitions.
    if registers > _REGISTERS_THREAD or warp * _rounded(warps, _PARTITIONS) > _REGISTERS:
        return 0
    if not warp:
        return _REGISTERS
    return _REGISTERS // _PARTITIONS // warp * _PARTITIONS // warps


def _by_shared(sm: Limits, shared: int) -> int:
    block = _rounded(shared + sm.reserved, sm.granule)
    if block > sm.shared_block + sm.reserved:
        return 0
    return sm.shared // block if block else sm.shared


def _rounded(count: int, unit: int) -> int:
    return -(-count // unit) * unit

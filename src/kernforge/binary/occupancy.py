# SPDX-License-Identifier: Apache-2.0
"""Number of blocks of a kernel that run on an SM at once, and the resource that limits it.

The rule is that of NVIDIA's ``cuda_occupancy.h`` (CUDA 13.0), for a device in its default state:
the L1 cache leaves the largest possible part to shared memory, and a kernel may opt into the larger
limit of shared memory for a block.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources

_WARP = 32
_PARTITIONS = 4
_REGISTERS = 65536  # of an SM, and the limit of a block
_REGISTERS_THREAD = 256
_REGISTERS_UNIT = 256  # registers of a warp are allocated in multiples of this
THREADS_BLOCK = 1024


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


@functools.cache
def table() -> Mapping[str, Limits]:
    """Limits by compute capability, such as ``9.0``."""
    text = resources.files("kernforge").joinpath("data/occupancy.json").read_text()
    known = json.loads(text)["capabilities"]
    return {name: Limits(**values) for name, values in known.items()}


def limits(arch: str) -> Limits | None:
    """Limits of an architecture such as ``9.0``, ``9.0a`` or ``10.0f``; None if unknown."""
    return table().get(arch.rstrip("af"))


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

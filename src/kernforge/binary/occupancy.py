# SPDX-License-Identifier: Apache-2.0
"""How many blocks of a kernel an SM can hold at once, and what keeps it from holding more.

The rule is that of NVIDIA's ``cuda_occupancy.h`` (CUDA 13.0), for a device in its default state: the
L1 cache yields all that it can to shared memory, and a kernel may opt into the larger block limit.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_WARP = 32
_PARTITIONS = 4
_REGISTERS = 65536  # of an SM, and the most that a block may have
_REGISTERS_THREAD = 256
_REGISTERS_UNIT = 256  # are given to a warp in multiples of these
THREADS_BLOCK = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one SM of a compute capability has; bytes and counts.

    Attributes:
        warps: that may be resident.
        blocks: that may be resident.
        barriers: that all its blocks may use together; 0 where they limit nothing.
        shared: bytes of shared memory.
        shared_block: bytes that a block may opt into.
        granule: bytes in whose multiples shared memory is given.
        reserved: bytes that the driver takes of every block.
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
    """What of an SM a launch can fill.

    Attributes:
        threads: of a block.
        blocks: resident at once; 0: it cannot be launched so.
        warps: resident at once.
        share: of the warps that the SM can hold.
        limits: what allows no more blocks: ``registers``, ``shared memory``, ``warps``,
            ``blocks``, ``barriers``.
    """

    threads: int
    blocks: int
    warps: int
    share: float
    limits: tuple[str, ...]


@functools.cache
def table() -> Mapping[str, Limits]:
    """Limits by compute capability, as ``9.0``."""
    text = resources.files("kernforge").joinpath("data/occupancy.json").read_text()
    known = json.loads(text)["capabilities"]
    return {name: Limits(**values) for name, values in known.items()}


def limits(arch: str) -> Limits | None:
    """Limits of an architecture, as ``9.0``, ``9.0a`` or ``10.0f``; None: it is not known."""
    return table().get(arch.rstrip("af"))


def occupancy(
    sm: Limits, *, threads: int, registers: int, shared: int, barriers: int = 0
) -> Occupancy:
    """Blocks of a kernel on one SM.

    Args:
        sm: what the SM has.
        threads: of a block.
        registers: of a thread.
        shared: bytes of shared memory of a block, static and dynamic.
        barriers: named barriers that the kernel uses.
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
    # The hardware checks a block as if its warps filled the SM's partitions evenly.
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

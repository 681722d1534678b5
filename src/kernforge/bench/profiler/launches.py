# SPDX-License-Identifier: Apache-2.0
"""A launch of a kernel as a tool saw it, and the document of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Dimensions = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelLaunch:
    """What a tool reports of one launch; None where it does not count that.

    Shares are of 1. Those of a pipe and of the issue slots are of the cycles in which a
    multiprocessor had work, those of DRAM and L2 of all cycles.

    Attributes:
        kernel: the kernel's name in C++, with its template arguments and parameters.
        time_ns: from its start to its end on the GPU.
        start_ns: when it began, by the GPU's clock; None where kernels are replayed one by one.
        grid: blocks in x, y, z.
        block: threads of a block in x, y, z.
        registers: of a thread.
        shared_bytes: shared memory of a block, static and dynamic.
        cluster: blocks of a cluster.
        waves: how often the grid fills the GPU.
        warps_possible: resident warps that the launch allows, as a share of those that fit.
        warps_active: resident warps that there were, as a share of those that fit.
        limits: what allows no more resident warps.
        dram_read: bytes read from the GPU's memory.
        dram_written: bytes written to it.
        dram: share of its peak rate.
        l2: share of the peak rate of the L2 cache.
        l2_hits: share of the sectors that were found in the L2 cache.
        l1: share of the peak rate of L1 cache and shared memory.
        tensor: share of the cycles in which the tensor cores worked.
        fma: the same of the pipe of floating-point multiply-add.
        alu: the same of the pipe of integers, comparisons and logic.
        fp64: the same of the pipe of double precision.
        special: the same of the pipe of special functions and conversions (XU).
        issue: share of the cycles in which an instruction was issued.
        busy: share of the time in which a multiprocessor had work.
        cycles: cycles of a warp between two of its instructions.
        stalls: of these cycles, those that a warp waited, by reason.
        conflicts: share of the accesses to shared memory that are repeated for a bank conflict.
        local_sectors: sectors of 32 bytes read from and written to local memory: spilled registers,
            and arrays that have no place in registers.
        sm_hz: clock of the multiprocessors.
    """

    kernel: str
    time_ns: float
    start_ns: float | None = None
    grid: Dimensions | None = None
    block: Dimensions | None = None
    registers: int | None = None
    shared_bytes: int | None = None
    cluster: int | None = None
    waves: float | None = None
    warps_possible: float | None = None
    warps_active: float | None = None
    limits: tuple[str, ...] = ()
    dram_read: float | None = None
    dram_written: float | None = None
    dram: float | None = None
    l2: float | None = None
    l2_hits: float | None = None
    l1: float | None = None
    tensor: float | None = None
    fma: float | None = None
    alu: float | None = None
    fp64: float | None = None
    special: float | None = None
    issue: float | None = None
    busy: float | None = None
    cycles: float | None = None
    stalls: Mapping[str, float] = field(default_factory=dict)
    conflicts: float | None = None
    local_sectors: float | None = None
    sm_hz: float | None = None

    @property
    def dram_bytes_per_s(self) -> float | None:
        """Bytes read from and written to the GPU's memory in a second."""
        if self.dram_read is None or self.dram_written is None or not self.time_ns:
            return None
        return (self.dram_read + self.dram_written) / self.time_ns * 1e9


def document(launch: KernelLaunch) -> dict[str, Any]:
    """A launch as JSON values, without what was not counted."""
    fields = dataclasses.asdict(launch) | {"stalls": dict(launch.stalls)}
    known = {name: value for name, value in fields.items() if value not in (None, {}, ())}
    if (rate := launch.dram_bytes_per_s) is not None:
        known["dram_bytes_per_s"] = rate
    return known


def same_calls(calls: list[list[KernelLaunch]]) -> list[KernelLaunch]:
    """The launches of several calls of one function as those of one call, each of median time.

    Where the calls launch different kernels, those of the last call.
    """
    last = calls[-1]
    names = [each.kernel for each in last]
    alike = [call for call in calls if [each.kernel for each in call] == names]
    middle = []
    for place, launch in enumerate(last):
        times = sorted(call[place].time_ns for call in alike)
        middle.append(dataclasses.replace(launch, time_ns=times[len(times) // 2]))
    return middle


def span_ns(launches: list[KernelLaunch]) -> float | None:
    """From the start of the first launch to the end of the last; None where starts are not known."""
    starts = [each.start_ns for each in launches if each.start_ns is not None]
    if not starts or len(starts) != len(launches):
        return None
    ends = [(each.start_ns or 0.0) + each.time_ns for each in launches]
    return max(ends) - min(starts)

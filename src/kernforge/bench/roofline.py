# SPDX-License-Identifier: Apache-2.0
"""Times against what the machine can do, measured in the same run.

The memory ceiling is a copy that moves as many bytes as the workload must, half read and half
written (on a GPU by a kernel that negates integers, which starts sooner than a copy does); the arithmetic ceiling is torch's matrix product in the workload's dtype. The roofline is
the larger of the two times (Williams, Waterman, Patterson, Roofline, CACM 52 (4), 2009).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

# How far below the floor a time may lie: a read needs no write-allocation on a CPU, and small
# workloads live in a cache that holds more of one's inputs than of another's.
_SLACK = {"cpu": 3.0, "cuda": 1.25}
_CACHED_SLACK = 3.0
_LARGE = 256 << 20
_SHORTEST_NS = 3_000.0  # Below, the clock and the call itself are what is measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceiling:
    """The machine's ceilings for one workload in one mode.

    Attributes:
        bytes: what the workload must move.
        flops: what it must compute.
        copy_ns: median time of the copy of as many bytes.
        best_copy_ns: the copy's best time.
        flops_per_s: median rate of the matrix product; 0 where it was not measured.
        best_flops_per_s: its best rate.
    """

    bytes: int
    flops: int
    copy_ns: float
    best_copy_ns: float
    flops_per_s: float = 0.0
    best_flops_per_s: float = 0.0

    @property
    def roof_ns(self) -> float:
        """The least time by the medians of the ceilings."""
        product = self.flops / self.flops_per_s * 1e9 if self.flops_per_s else 0.0
        return max(self.copy_ns, product)

    @property
    def bound(self) -> str:
        """What limits it: ``memory`` or ``arithmetic``."""
        return "memory" if self.roof_ns == self.copy_ns else "arithmetic"

    @property
    def floor_ns(self) -> float:
        """The least time by the best that was seen of each ceiling."""
        product = self.flops / self.best_flops_per_s * 1e9 if self.best_flops_per_s else 0.0
        return max(self.best_copy_ns, product)


def ceiling(
    *, moved: int, flops: int, copies: Sequence[float], products: Sequence[float], side: int
) -> Ceiling:
    """Ceilings from the times of copies and of matrix products of ``side`` cubed.

    Args:
        moved: bytes of the workload.
        flops: floating-point operations of the workload.
        copies: nanoseconds of each copy, sorted or not; at least one.
        products: nanoseconds of each product; none where ``flops`` is 0.
        side: rows and columns of the product's square matrices.
    """
    work = 2.0 * side**3 * 1e9
    return Ceiling(
        bytes=moved,
        flops=flops,
        copy_ns=_middle(copies),
        best_copy_ns=min(copies),
        flops_per_s=work / _middle(products) if products else 0.0,
        best_flops_per_s=work / min(products) if products else 0.0,
    )


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


def below_floor(median_ns: float, top: Ceiling, device: str) -> str:
    """Why a time cannot be right with these ceilings of the machine; empty when it can."""
    slack = _SLACK[device] if top.bytes >= _LARGE else _CACHED_SLACK
    least = top.floor_ns / slack
    if median_ns >= least or top.floor_ns <= _SHORTEST_NS:
        return ""
    return (
        f"{median_ns / 1e3:.2f} us is below the floor: the machine needs "
        f"{top.floor_ns / 1e3:.2f} us for {top.bytes} bytes and {top.flops} operations"
    )

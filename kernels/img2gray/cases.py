# SPDX-License-Identifier: Apache-2.0
"""Shapes for tests and benchmarks, each with the regime that it stands for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A picture or a batch: ``shape`` is ``[H, W, 3]`` or ``[N, H, W, 3]``."""

    shape: tuple[int, ...]
    regime: str

    def __str__(self) -> str:
        return "x".join(map(str, self.shape))


# A group is 16 pixels on the GPU, a block 16 or 32 pixels on the CPU.
TEST_CASES = (
    Case(shape=(1, 1, 3), regime="one pixel"),
    Case(shape=(1, 15, 3), regime="narrower than any block"),
    Case(shape=(1, 16, 3), regime="one group"),
    Case(shape=(1, 17, 3), regime="a group and a pixel"),
    Case(shape=(33, 1, 3), regime="one pixel wide: collapses to a row"),
    Case(shape=(31, 33, 3), regime="odd by odd: rows start at every alignment"),
    Case(shape=(127, 641, 3), regime="a prime width over several blocks"),
    Case(shape=(480, 640, 3), regime="aligned rows"),
    Case(shape=(1, 1, 1, 3), regime="a batch of one pixel"),
    Case(shape=(3, 7, 5, 3), regime="a batch of tiny pictures"),
    Case(shape=(8, 224, 224, 3), regime="a batch as networks take it"),
)

# H, W of single crops out of a larger picture: rows with a pitch.
CROPS = ((1, 1), (5, 3), (7, 16), (9, 47), (4, 96), (3, 1001))

BENCH_CASES = (
    Case(shape=(32, 224, 224, 3), regime="a batch for a network: fits the L2 cache, launch counts"),
    Case(shape=(1080, 1920, 3), regime="HD: 8 MB, launch and ramp-up count"),
    Case(shape=(2160, 3840, 3), regime="4K: 33 MB, about half bandwidth, half ramp-up"),
    Case(shape=(8640, 15360, 3), regime="16K: 531 MB, nothing but bandwidth"),
)

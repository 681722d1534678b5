# SPDX-License-Identifier: Apache-2.0
"""Shapes for tests, each with the path that it stands for; rows are the last dimension."""

from __future__ import annotations

# On a GPU, rows of up to 1,024 elements are one warp's, which takes as many as fill 1,024 slots;
# rows of up to 16,384 are one block's; radix sort takes longer ones.
SHAPES = {
    "no rows": (0, 5),
    "empty rows": (3, 0),
    "one element": (1,),
    "rows of one": (7, 1),
    "less than a thread's": (5, 13),
    "a thread's row": (3, 32),
    "two threads' rows, a part of a warp's": (2, 3, 50),
    "whole rows": (9, 128),
    "several rows a warp, and a tail": (67, 63),
    "a warp's row": (2, 1024),
    "a block's, and a tail": (2, 1500),
    "four warps' row": (1, 4096),
}

# Of the GPU alone.
LARGE = {
    "eight warps' row, and a tail": (3, 8000),
    "the longest of a block": (2, 16_384),
    "the first of radix sort": (3, 16_385),
    "a row of its own": (2, 600_001),
    "many rows": (70_000, 33),
}

# SPDX-License-Identifier: Apache-2.0
"""Sizes for tests, each with the path that it stands for: (rows, in_features, out_features)."""

from __future__ import annotations

SHAPES = {
    "no rows": (0, 16, 24),
    "no columns": (3, 16, 0),
    "nothing to sum": (3, 0, 24),
    "one of each": (1, 1, 1),
    "odd: torch's product": (7, 13, 5),
    "one row": (1, 64, 24),
    "eight rows, a tail of columns": (8, 72, 40),
    "sixteen rows": (16, 40, 17),
    "rows of the mma path": (31, 136, 56),
    "a part of one tile": (40, 72, 64),
    "tiles of 64 columns and tails": (130, 200, 136),
    "odd depth: torch's product": (70, 33, 48),
}

# Of the GPU alone: they are slow on a CPU. What the tiles and their order are chosen by.
LARGE = {
    "tiles of 128 columns": (300, 520, 8200),
    "tiles of 128 columns, few rows": (100, 520, 17_000),
    "tiles of 256 columns": (1100, 520, 8200),
    "bands and tails": (3000, 1000, 5000),
    "many slices": (256, 8200, 512),
    "odd stride of the result": (200, 256, 513),
    "32 columns a block": (16, 4104, 8200),
    "32 columns a block, 32 rows": (32, 4104, 8200),
}

# SPDX-License-Identifier: Apache-2.0
"""Sizes for tests, each with what it stands for: (rows, depth, columns)."""

from __future__ import annotations

SHAPES = {
    "no rows": (0, 16, 24),
    "no columns": (3, 16, 0),
    "nothing to sum": (3, 0, 24),
    "one of each": (1, 1, 1),
    "odd": (7, 13, 5),
    "one row": (1, 64, 24),
    "a part of one tile": (40, 72, 64),
    "tiles of 64 columns and tails": (130, 200, 136),
}

# Of the GPU alone: what the tiles are chosen by, and what is torch's.
LARGE = {
    "few tiles": (500, 264, 320),
    "tiles of 64 columns": (2000, 520, 1600),
    "tiles of 128 columns": (304, 520, 8200),
    "tiles of 256 columns": (1100, 520, 8200),
    "bands and tails": (3000, 1000, 5000),
    "many slices": (256, 8200, 512),
    "odd depth": (300, 333, 512),
    "odd columns": (200, 256, 513),
    "all odd": (257, 511, 1023),
}

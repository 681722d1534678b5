# SPDX-License-Identifier: Apache-2.0
"""Sizes for tests, each with the path that it stands for: (rows, width)."""

from __future__ import annotations

SHAPES = {
    "no rows": (0, 16),
    "no columns": (3, 0),
    "one of each": (1, 1),
    "odd: no vectors": (7, 13),
    "several rows a warp": (37, 24),
    "a warp a row": (9, 200),
    "more than a warp a row": (5, 1016),
}

# Of the GPU alone: one for each way to cut rows, in half types and in float32.
WIDTHS = (8, 64, 128, 256, 512, 1000, 1024, 2048, 3000, 4096, 5120, 8192, 8200, 16384, 20_000)
WIDE = (32_768, 65_536, 70_000, 131_072)
ODD = (3, 33, 1001, 4097, 65_537)

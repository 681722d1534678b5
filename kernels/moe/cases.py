# SPDX-License-Identifier: Apache-2.0
"""Sizes for tests, each with what it stands for: (tokens, experts, top_k, width, inner)."""

from __future__ import annotations

SHAPES = {
    "no tokens": (0, 4, 2, 8, 16),
    "nothing inside": (3, 4, 2, 8, 0),
    "one of each": (1, 1, 1, 1, 1),
    "odd: the plain path": (7, 5, 3, 13, 5),
    "small": (4, 3, 2, 8, 5),
    "more experts than tokens": (2, 40, 4, 16, 8),
    "tails of tiles": (37, 4, 2, 24, 40),
}

# Of the GPU alone: they are slow on a CPU. Every size of tile, several tiles of an expert, many
# chunks of the sort.
LARGE = {
    "one token": (1, 128, 8, 256, 192),
    "few tokens": (16, 128, 8, 512, 192),
    "one chunk of assignments": (128, 128, 8, 512, 192),
    "tiles of few tokens": (640, 64, 4, 264, 200),
    "tiles of many tokens": (1000, 8, 1, 256, 136),
    "two tiles an expert": (1100, 8, 2, 512, 384),
    "bands of tiles": (9000, 2, 1, 128, 72),
    "many slices": (300, 4, 2, 2048, 1096),
    "all experts": (200, 8, 8, 128, 128),
    "width that is not on 16 bytes": (200, 8, 2, 100, 64),
    "float32 sizes": (500, 8, 2, 96, 136),
}

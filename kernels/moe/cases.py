# SPDX-License-Identifier: Apache-2.0
"""Sizes for tests, each with what it stands for: (tokens, experts, top_k, width, inner)."""

from __future__ import annotations

SHAPES = {
    "no tokens": (0, 4, 2, 8, 16),
    "nothing inside": (3, 4, 2, 8, 0),
    "one of each": (1, 1, 1, 1, 1),
    "odd": (7, 5, 3, 13, 5),
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
    "rows of x that are copied": (250, 4, 2, 136, 4104),
    "all experts": (200, 8, 8, 128, 128),
    "width that is not on 16 bytes": (200, 8, 2, 100, 64),
    "nothing on 16 bytes": (150, 8, 2, 1001, 333),
    "nothing on 16 bytes, few of the experts": (1, 64, 2, 101, 67),
    "float32 sizes": (500, 8, 2, 96, 136),
}

# With weights of 8 bits: whole blocks of factors and parts of them, halves of w1 that share a
# block, experts without tokens, rows that are not on 16 bytes.
SCALED = {
    "one token": (1, 16, 4, 256, 128),
    "whole blocks": (9, 8, 2, 256, 256),
    "parts of blocks": (37, 8, 2, 272, 80),
    "a block of gate and up": (20, 4, 2, 128, 192),
    "not on 16 bytes": (20, 4, 2, 100, 36),
    "no tokens": (0, 4, 2, 32, 16),
    "more experts than tokens": (3, 40, 2, 144, 16),
}
SCALED_LARGE = {
    "few tokens": (16, 128, 8, 512, 192),
    "tiles of 64": (1000, 8, 2, 272, 208),
    "many slices": (300, 4, 2, 2048, 1040),
}

# SPDX-License-Identifier: Apache-2.0
"""Shapes for tests, each with the regime that it stands for."""

from __future__ import annotations

# A pack is 16 bytes of the result: 4 or 8 voxels. A block of the GPU takes 256 packs. Volumes of
# up to 2^15 voxels are one block's where their moments are computed, which keeps those of up to
# 512 packs of 16 bytes in registers. Beyond 2^20 voxels in all, blocks add to one place.
SHAPES = {
    "no voxels": (0, 4, 5),
    "one voxel": (1, 1, 1),
    "less than a pack": (1, 1, 3),
    "odd by odd": (3, 7, 13),
    "a batch of odd ones": (3, 2, 5, 7),
    "a batch of whole packs": (2, 4, 4, 16),
    "several blocks and a tail": (7, 41, 131),
}
"""Any volume."""

MOMENTS = {
    **SHAPES,
    "several blocks a volume, and a tail": (2, 11, 41, 83),
    "whole packs, many blocks": (2, 16, 32, 96),
    "as many packs as a block of the GPU has threads": (2, 16, 16, 16),
    "more than 2^20 voxels, and a tail": (2, 61, 89, 101),
}
"""Volumes that are more than one block's, too."""

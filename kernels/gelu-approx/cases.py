# SPDX-License-Identifier: Apache-2.0
"""Shapes and views for tests, each with the regime that it stands for."""

from __future__ import annotations

# A pack is 16 bytes: 2 to 8 elements. A block of the GPU takes 256 packs.
SHAPES = {
    "empty": (0,),
    "one element": (1,),
    "less than a pack": (3,),
    "a pack and a tail": (9,),
    "odd by odd": (7, 13, 5),
    "a block less one": (1023,),
    "several blocks and a tail": (10_007,),
}

# Views of a [12, 18, 20] tensor.
VIEWS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(0, 2),
    "channels last": lambda t: t.permute(1, 2, 0),
    "every second": lambda t: t[:, :, ::2],
    "crop": lambda t: t[1:-1, 3:, 5:],
    "column": lambda t: t[:, 4, 7],
    "one element": lambda t: t[5, 6, 7],
    "no elements": lambda t: t[:, :0],
    "expanded": lambda t: t[:1].expand(7, -1, -1),
}

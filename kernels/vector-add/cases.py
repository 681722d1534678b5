# SPDX-License-Identifier: Apache-2.0
"""Shapes and views for tests, each with the regime that it stands for."""

from __future__ import annotations

# A pack is 16 bytes: 2 to 8 elements. A block of the GPU takes 256 packs, or 1,024 of large
# tensors, which have 2**18 packs or more.
SHAPES = {
    "empty": (0, 7),
    "one element": (1,),
    "less than a pack": (3,),
    "a pack and a tail": (9,),
    "a block less one": (1023,),
    "several blocks and a tail": (10_007,),
    "three dimensions, odd": (7, 13, 5),
    "two dimensions, blocks and a tail": (67, 263),
}
LARGE = {"large, whole blocks": 1 << 21, "large, and a tail": (1 << 21) + 1029}

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
}
# A view whose elements share memory: fine to read, never to write.
EXPANDED = {"expanded": lambda t: t[:1].expand(7, -1, -1)}

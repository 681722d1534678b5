# SPDX-License-Identifier: __LICENSE__
"""Shapes for tests, each with the regime that it stands for."""

from __future__ import annotations

TEST_SHAPES = {
    "a scalar": (),
    "empty": (0, 7),
    "one element": (1,),
    "less than 16 bytes": (3,),
    "odd": (7, 13, 5),
    "several blocks and a rest": (257, 1031),
}

# Relative and absolute: half a unit in the last place of the dtype, with room for float32's own.
TOLERANCES = {
    "float32": (2e-7, 1e-45),
    "float16": (5e-4, 6e-8),
    "bfloat16": (4e-3, 1e-40),
}

# SPDX-License-Identifier: __LICENSE__
"""Shapes for tests, by names that say what each shape tests."""

from __future__ import annotations

TEST_SHAPES = {
    "a scalar": (),
    "empty": (0, 7),
    "one element": (1,),
    "less than 16 bytes": (3,),
    "odd": (7, 13, 5),
    "several blocks and a rest": (257, 1031),
}

DTYPES = ("float32", "float16", "bfloat16", "float64")

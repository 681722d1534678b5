# SPDX-License-Identifier: Apache-2.0
"""Checks of operators for pytest: an author declares the operator, its reference and its cases.

    from kernforge.testing import op_tests

    TestRelu = op_tests(
        op="relu",  # of the tested build; or a callable
        reference=lambda x: x.clamp(min=0),
        inputs=lambda draw, shape: (draw(shape),),
        dtypes=("float32", "float16", "bfloat16"),
    )

makes tests that are named after their check, for every shape, dtype and device:
``pytest -k views``.

This module imports nothing until a name is used.
"""

from __future__ import annotations

from kernforge import _lazy

TYPE_CHECKING = False  # type checkers know the name; importing typing takes nearly ten milliseconds
if TYPE_CHECKING:
    from kernforge.compare.results import FACTOR, assert_bitwise, assert_near, tolerance, ulp
    from kernforge.testing.checks import op_tests
    from kernforge.testing.guards import Guarded, surround, watched
    from kernforge.testing.import_hook import load_beside
    from kernforge.testing.inputs import SHAPES, VIEWS, Draw

__all__ = [
    "FACTOR",
    "SHAPES",
    "VIEWS",
    "Draw",
    "Guarded",
    "assert_bitwise",
    "assert_near",
    "load_beside",
    "op_tests",
    "surround",
    "tolerance",
    "ulp",
    "watched",
]

__getattr__, __dir__ = _lazy.attributes(
    __name__,
    {
        "import_hook": "load_beside",
        "checks": "op_tests",
        ".compare.results": "FACTOR assert_bitwise assert_near tolerance ulp",
        "guards": "Guarded surround watched",
        "inputs": "Draw SHAPES VIEWS",
    },
    __all__,
)

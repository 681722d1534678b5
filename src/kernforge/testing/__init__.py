# SPDX-License-Identifier: Apache-2.0
"""Checks of operators for pytest: an author declares the operator, its reference and its cases.

    from kernforge.testing import op_tests

    TestRelu = op_tests(
        op="relu",  # of the tested build; or a callable
        reference=lambda x: x.clamp(min=0),
        inputs=lambda draw, shape: (draw(shape),),
        dtypes=("float32", "float16", "bfloat16"),
    )

makes tests that are named after their check, for every shape, dtype and device: ``pytest -k views``.

Every pytest of an environment with kernforge loads ``kernforge.testing.plugin``, so that this module
imports nothing until a name is used.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers know the name; importing typing takes nearly ten milliseconds
if TYPE_CHECKING:
    from kernforge.testing.checks import op_tests
    from kernforge.testing.compare import FACTOR, assert_bitwise, assert_near, tolerance, ulp
    from kernforge.testing.guards import Guarded, surround, watched
    from kernforge.testing.inputs import SHAPES, VIEWS, Draw

__all__ = [
    "FACTOR",
    "SHAPES",
    "VIEWS",
    "Draw",
    "Guarded",
    "assert_bitwise",
    "assert_near",
    "op_tests",
    "surround",
    "tolerance",
    "ulp",
    "watched",
]

_HOME_OF = {
    "FACTOR": "compare",
    "SHAPES": "inputs",
    "VIEWS": "inputs",
    "Draw": "inputs",
    "Guarded": "guards",
    "assert_bitwise": "compare",
    "assert_near": "compare",
    "op_tests": "checks",
    "surround": "guards",
    "tolerance": "compare",
    "ulp": "compare",
    "watched": "guards",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    try:
        return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        from kernforge.system import extras  # noqa: PLC0415 - see above

        missing = extras.missing(error, __name__)
        if missing is None:
            raise
        raise missing from error


def __dir__() -> list[str]:
    return list(__all__)

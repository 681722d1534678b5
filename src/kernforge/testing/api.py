# SPDX-License-Identifier: Apache-2.0
"""Checks of operators for pytest: an author declares the operator, its reference and its cases.

    from kernforge.testing import op_tests

    TestRelu = op_tests(
        op="relu",  # of the tested build; or a callable
        reference=lambda x: x.clamp(min=0),
        inputs=lambda draw, shape: (draw(shape),),
        dtypes=("float32", "float16", "bfloat16"),
    )

makes tests named after what they check, for every shape, dtype and device: ``pytest -k views``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernforge.system import extras

try:
    import pytest  # noqa: F401 - what all below needs
except ModuleNotFoundError as error:
    if told := extras.missing(error, __name__):
        raise told from error
    raise

from kernforge.testing import options as testing_options
from kernforge.testing.case import Declared
from kernforge.testing.checks import Checks
from kernforge.testing.compare import FACTOR, assert_bitwise, assert_near, tolerance, ulp
from kernforge.testing.guards import Guarded, surround, watched
from kernforge.testing.inputs import SHAPES, VIEWS, Draw

if TYPE_CHECKING:
    from collections.abc import Callable

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


def op_tests(
    *,
    op: str | Callable[..., Any],
    reference: Callable[..., Any],
    inputs: Callable[[Draw, tuple[int, ...]], tuple[Any, ...]],
    **options: Any,
) -> type[Checks]:
    """A class of tests for one operator; give it a name that begins with ``Test``.

    Args:
        op: a callable, or the name of an attribute of the tested build (the fixture ``kernel``).
        reference: the same in plain torch. It takes the same arguments and returns what the
            operator writes to (``draw.out``, ``draw.inplace``) and then what it returns. It is
            called with float64 arguments for the truth and with the tested dtype's for the
            tolerance.
        inputs: makes the arguments from ``draw`` and a shape: ``draw(shape)`` is a tensor of the
            tested dtype, ``draw(shape, "int64")`` one of another.
        options: the other attributes of ``kernforge.testing.case.Declared``: call, shapes, dtypes,
            devices, views, backward, second_backward, elementwise, rowwise, large, factor, leave_out.

    Raises:
        UsageError: there is no such option, dtype, device, view or check, or it says nothing.
    """
    checks = {n.removeprefix("test_") for n in dir(Checks) if n.startswith("test_")}
    said = testing_options.tidied(options, checks)
    declared = Declared(op=op, reference=reference, inputs=inputs, **said)
    return type("Checks", (Checks,), {"declared": declared, "_right": {}, "__test__": True})

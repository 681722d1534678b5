# SPDX-License-Identifier: __LICENSE__
"""The operator __OP__ against its reference."""

from __future__ import annotations

import torch

from kernforge.testing import op_tests


def reference(x: torch.Tensor) -> torch.Tensor:
    """``x * x`` in float64."""
    return x.double() * x.double()


# A test for each check: values, views, what lies around the memory, torch.compile, streams, graphs.
TestOp = op_tests(
    op="__OP__",
    reference=reference,
    inputs=lambda draw, shape: (draw(shape),),
    dtypes=("float32", "float16", "bfloat16", "float64"),
    elementwise=True,
)

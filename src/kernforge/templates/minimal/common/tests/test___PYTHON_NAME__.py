# SPDX-License-Identifier: __LICENSE__
"""The kernel against plain torch."""

from __future__ import annotations

from kernforge.testing import op_tests

# A test for each check: values, views, guards around memory, torch.compile, streams, graphs.
TestKernel = op_tests(
    op="__PYTHON_NAME__",
    reference=lambda x, scale: x.clamp(min=0) * scale,
    inputs=lambda draw, shape: (draw(shape), 1.7),
    dtypes=("float32", "float16", "bfloat16", "float64"),
    elementwise=True,
)

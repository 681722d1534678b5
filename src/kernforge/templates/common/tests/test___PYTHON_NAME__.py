# SPDX-License-Identifier: __LICENSE__
"""The kernel against its reference.

`op_tests` makes a test for each of its checks: values, special values, views, guards around memory,
determinism, torch.compile, streams, graphs. `pytest -k views` runs one of them.
"""

from __future__ import annotations

import pytest
import torch

from kernforge.testing import assert_near, load_beside, op_tests

cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")

TestKernel = op_tests(
    op="__PYTHON_NAME__",
    reference=reference.__PYTHON_NAME__,
    inputs=lambda draw, shape: (draw(shape), 1.7),
    shapes=cases.TEST_SHAPES,
    dtypes=cases.DTYPES,
    # [gradient]
    backward=True,
    # [end]
    elementwise=True,
    large=(2**31 + 17,),
)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_16_bit_pattern(kernel, device, dtype):
    x = torch.arange(-(2**15), 2**15).to(torch.int16).view(getattr(torch, dtype)).to(device)
    exact, same = (reference.__PYTHON_NAME__(each, 1.0) for each in (x.double(), x))
    assert_near(kernel.__PYTHON_NAME__(x, 1.0), exact, same)


# [gradient]
def test_the_gradient_at_special_values(kernel, device):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, -1.0, 1.0], device=device, requires_grad=True)
    kernel.__PYTHON_NAME__(x, 2.0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 2.0, 0.0, 0.0, 0.0, 2.0]


def test_a_second_derivative_is_an_error(kernel, device):
    x = torch.ones(3, device=device, requires_grad=True)
    (gradient,) = torch.autograd.grad(kernel.__PYTHON_NAME__(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        gradient.sum().backward()


# [end]
def test_another_dtype_is_refused(kernel, device):
    with pytest.raises(ValueError, match=r"bfloat16 or float64, got Int"):
        kernel.__PYTHON_NAME__(torch.ones(3, dtype=torch.int32, device=device))

# SPDX-License-Identifier: Apache-2.0
"""The tolerance of results, and the message of a difference."""

import pytest
import torch

from kernforge.testing import assert_bitwise, assert_near, tolerance, ulp


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [1.0, 1.5, 3.0, 1e-3])
def test_an_ulp_is_the_distance_to_the_next_number(dtype, value):
    at = torch.tensor(value, dtype=dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    following = (at.view(bits) + 1).view(dtype)
    assert ulp(at.double(), dtype) == following.double() - at.double()


def test_the_tolerance_is_twice_the_error_of_the_reference():
    exact = torch.tensor([1.0, 100.0], dtype=torch.float64)
    same = exact.float() + torch.tensor([4.0, 0.0]) * 2**-23
    step = ulp(exact, torch.float32)
    assert torch.equal(tolerance(exact, same, torch.float32)[0], 2 * 4 * step[0] + step[0])


@pytest.mark.parametrize(
    ("got", "message"),
    [
        (
            [[1.0, 2.0], [3.0, 5.0]],
            r"result\[1, 1\]: got 5.0, wanted 4.0, 2.097e\+06 ulps apart where 1 are",
        ),
        ([[1.0, float("nan")], [3.0, 4.0]], r"result\[0, 1\]: got nan, wanted 2.0"),
        ([[1.0, 2.0], [float("inf"), 0.0]], r"result\[1, 0\].*\(2 of 4 elements differ: 50 %\)"),
        ([[1.0, 2.0]], r"shape \(1, 2\), wanted \(2, 2\)"),
    ],
)
def test_the_first_mismatch_is_named(got, message):
    exact = torch.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=torch.float64)
    with pytest.raises(AssertionError, match=message):
        assert_near(torch.tensor(got), exact, exact.float())


def test_one_ulp_passes_and_two_do_not():
    exact = torch.tensor([1.0], dtype=torch.float64)
    assert_near(torch.tensor([1 + 2**-23]), exact, exact.float())
    with pytest.raises(AssertionError, match="2 ulps apart"):
        assert_near(torch.tensor([1 + 2**-22]), exact, exact.float())


def test_nan_and_infinities_equal_themselves():
    values = torch.tensor([float("nan"), float("inf"), -float("inf")])
    assert_near(values, values.double(), values)


def test_bitwise_comparison_tells_zeros_apart():
    with pytest.raises(AssertionError, match=r"result\[0\]: got -0.0, wanted 0.0"):
        assert_bitwise(torch.tensor([-0.0]), torch.tensor([0.0]))

# SPDX-License-Identifier: Apache-2.0
"""Declarations of an author."""

import pytest

from kernforge import Tensor, Workload
from kernforge.bench import workload
from kernforge.errors import UsageError


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("2^10:2^12", [1024, 2048, 4096]),
        ("2^4:2^12:4", [16, 256, 4096]),
        ("1000,2^10", [1000, 1024]),
    ],
)
def test_sizes(text, sizes):
    assert workload.sizes(text) == sizes


@pytest.mark.parametrize("text", ["", "x", "2^12:2^10", "2^4:", "2^1:2^3:0"])
def test_invalid_sizes_are_refused(text):
    with pytest.raises(UsageError):
        workload.sizes(text)


@pytest.mark.parametrize("inputs", [Tensor(shape=(4,)), (1.5,)])
def test_inputs_that_are_no_tuple_of_tensors_are_refused(inputs):
    with pytest.raises(UsageError, match="inputs is not a tuple"):
        Workload(name="w", inputs=inputs, reference=abs)

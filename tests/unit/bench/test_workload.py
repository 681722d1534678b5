# SPDX-License-Identifier: Apache-2.0
"""What an author declares, and what is refused with a reason."""

import pytest

from kernforge import Tensor, Workload
from kernforge.bench import workload
from kernforge.errors import UsageError

GIVEN = {"name": "w", "inputs": (Tensor(shape=(4,)),), "reference": abs}


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
def test_other_texts_are_no_sizes(text):
    with pytest.raises(UsageError):
        workload.sizes(text)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"inputs": Tensor(shape=(4,))}, "inputs is not a tuple"),
        ({"inputs": (1.5,)}, "nothing to draw"),
        ({"outputs": "float32"}, "outputs is a string"),
    ],
)
def test_a_field_that_cannot_be_is_refused_with_its_name(fields, said):
    with pytest.raises(UsageError, match=said):
        Workload(**GIVEN | fields)


@pytest.mark.parametrize("fields", [{"shape": 4}, {"shape": (4,), "dtype": "x"}])
def test_a_tensor_that_cannot_be_is_refused(fields):
    with pytest.raises(UsageError):
        Tensor(**fields)

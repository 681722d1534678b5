# SPDX-License-Identifier: Apache-2.0
"""Declarations of an author, and the tensors of a case: their numbers, layouts and dtypes."""

import pytest
import torch

from kernforge.errors import UsageError
from kernforge.testing import VIEWS, Draw, op_tests
from kernforge.testing.case import Trial

DRAW = Draw(device="cpu", dtype=torch.float32)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": ()}, "no option 'view'"),
        ({"views": ("sideways",)}, "no view 'sideways'"),
        ({"leave_out": {"speed": ""}}, "no check 'speed'"),
        ({"dtypes": ("fp16",)}, "no dtype 'fp16'"),
        ({"dtypes": ()}, "dtypes is empty"),
        ({"devices": ["gpu"]}, "no device 'gpu'"),
    ],
)
def test_a_wrong_declaration_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        op_tests(op=abs, reference=abs, inputs=lambda draw, shape: (draw(shape),), **options)


def test_a_single_name_becomes_a_tuple():
    found = op_tests(
        op=abs, reference=abs, inputs=abs, dtypes=torch.float16, devices="cpu", views=("cropped",)
    ).declared
    assert (found.dtypes, found.devices, found.views) == (("float16",), ("cpu",), ("cropped",))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"inputs": lambda draw, shape: draw(shape)}, "inputs returns a Tensor"),
        ({"reference": lambda x: None}, "the reference returns a NoneType"),
    ],
)
def test_a_wrong_return_of_the_author_is_named(wrong, message):
    right = {"reference": torch.abs, "inputs": lambda draw, shape: (draw(shape),)}
    declared = op_tests(op=torch.abs, **(right | wrong)).declared

    trial = Trial(declared=declared, op=torch.abs, draw=DRAW, shape=(3,))
    with pytest.raises(UsageError, match=message):
        trial.case().check(torch.ones(3))


def test_a_reference_in_float64_throughout_is_named_where_rounding_is_judged():
    inputs = {"inputs": lambda draw, shape: (draw(shape),)}
    declared = op_tests(op=abs, reference=lambda x: x.double().abs(), **inputs).declared
    case = Trial(declared=declared, op=abs, draw=DRAW, shape=(300,)).case()
    with pytest.raises(AssertionError, match=r"leave its \.double\(\) out"):
        case.check(case.args[0].abs() * (1 + 2**-21))


SHAPE = (6, 9)


def case_of(draw, count=2):
    checks = op_tests(
        op=torch.add,
        reference=torch.add,
        inputs=lambda draw, shape: tuple(draw(shape) for _ in range(count)),
    )
    return Trial(declared=checks.declared, op=torch.add, draw=draw, shape=SHAPE).case()


def test_tensors_of_a_case_differ_and_cases_do_not():
    (a, b), (c, d) = case_of(DRAW).args, case_of(DRAW).args
    assert not torch.equal(a, b)
    assert torch.equal(a, c)
    assert torch.equal(b, d)


@pytest.mark.parametrize("layout", [v for v in VIEWS if v != "one repeated"])
def test_a_layout_changes_no_value(layout):
    plain = DRAW.afresh()(SHAPE)
    laid_out = Draw(device="cpu", dtype=torch.float32, layout=layout)(SHAPE)
    assert torch.equal(plain, laid_out)
    assert not laid_out.is_contiguous() or laid_out.storage_offset()


@pytest.mark.parametrize(
    ("dtype", "message"),
    [
        ("fp16", "no dtype 'fp16'"),
        ("complex64", "no tolerance"),
        (torch.complex64, "no tolerance"),
    ],
)
def test_an_unsupported_dtype_is_refused(dtype, message):
    with pytest.raises(UsageError, match=message):
        DRAW(SHAPE, dtype)
    with pytest.raises(UsageError, match=message):
        op_tests(op=torch.add, reference=torch.add, inputs=lambda d, s: (d(s),), dtypes=(dtype,))

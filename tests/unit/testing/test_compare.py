# SPDX-License-Identifier: Apache-2.0
"""How near a result must be, and what the message says when it is not."""

import ctypes
import functools
import types

import pytest
import torch

from kernforge.errors import UsageError
from kernforge.testing import (
    Draw,
    assert_bitwise,
    assert_near,
    checks,
    op_tests,
    surround,
    tolerance,
    ulp,
    watched,
)
from kernforge.testing.case import Case, assert_case


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("value", [1.0, 1.5, 3.0, 1e-3])
def test_an_ulp_is_the_way_to_the_next_number(dtype, value):
    at = torch.tensor(value, dtype=dtype)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[dtype.itemsize]
    following = (at.view(bits) + 1).view(dtype)
    assert ulp(at.double(), dtype) == following.double() - at.double()


def test_what_the_reference_loses_a_kernel_may_lose_twice():
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


def test_bits_tell_zeros_apart():
    with pytest.raises(AssertionError, match=r"result\[0\]: got -0.0, wanted 0.0"):
        assert_bitwise(torch.tensor([-0.0]), torch.tensor([0.0]))


@pytest.mark.parametrize(
    ("at", "where"), [(-1, "before it were written, the nearest is 1 off"), (12, "after it")]
)
def test_a_written_guard_is_told_with_its_distance(at, where):
    one = surround(torch.zeros(3))
    assert not one.broken()
    one.buffer[512 + at] = 0
    assert where in one.broken()


def test_new_memory_holds_poison():
    made, watch = watched(lambda: torch.empty(3, dtype=torch.uint8))
    assert made.tolist() == [0xA5] * 3
    assert len(watch.outputs) == 1


def test_memory_that_torch_does_not_hand_out_holds_poison_too():
    libc, place = ctypes.CDLL(None), ctypes.c_void_p()
    if not hasattr(libc, "mallopt"):
        pytest.skip("the C library is not glibc")
    allocate = functools.partial(libc.posix_memalign, ctypes.byref(place), 64, 4096)
    status, _ = watched(allocate)
    held = ctypes.string_at(place.value, 4096)
    libc.free(place)
    assert (status, set(held)) == (0, {0xA5})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"view": ()}, "no option 'view'"),
        ({"views": ("sideways",)}, "no view 'sideways'"),
        ({"leave_out": {"speed": ""}}, "no check 'speed'"),
        ({"leave_out": ["views"]}, r"leave_out is \['views'\]"),
        ({"dtypes": ("fp16",)}, "no dtype 'fp16'"),
        ({"dtypes": ()}, "dtypes is empty"),
        ({"devices": ["gpu"]}, "no device 'gpu'"),
        ({"shapes": [(3,)]}, r"shapes is \[\(3,\)\]"),
        ({"shapes": {}}, "shapes is {}"),
        ({"shapes": {"one": 1}}, "shape 'one' is 1"),
        ({"large": 2**31}, "large is 2147483648"),
    ],
)
def test_a_wrong_declaration_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        op_tests(op=abs, reference=abs, inputs=lambda draw, shape: (draw(shape),), **options)


def test_one_name_stands_for_a_list_of_it():
    found = op_tests(
        op=abs, reference=abs, inputs=abs, dtypes=torch.float16, devices="cpu", views=("cropped",)
    ).declared
    assert (found.dtypes, found.devices, found.views) == (("float16",), ("cpu",), ("cropped",))


@pytest.mark.parametrize(
    ("said", "message"),
    [
        ({"inputs": lambda draw, shape: draw(shape)}, "inputs returns a Tensor"),
        ({"reference": lambda x: None}, "the reference returns a NoneType"),
    ],
)
def test_what_an_author_returns_wrongly_is_named(said, message):
    right = {"reference": torch.abs, "inputs": lambda draw, shape: (draw(shape),)}
    declared = op_tests(op=torch.abs, **(right | said)).declared

    def judged():
        case = Case.make(declared, Draw(device="cpu", dtype=torch.float32), (3,))
        assert_case(declared, case, torch.abs(*case.args))

    with pytest.raises(UsageError, match=message):
        judged()


def test_an_operator_that_the_build_lacks_is_named():
    build = types.SimpleNamespace(relu=abs, ops=types.SimpleNamespace(gelu=sum), _own=1)
    assert checks._attribute(build, "ops.gelu") is sum
    with pytest.raises(UsageError, match=r"has no 'rleu'") as caught:
        checks._attribute(build, "rleu")
    assert caught.value.hint == "it has ops, relu"

# SPDX-License-Identifier: Apache-2.0
"""Every backend gives torch's stable order, bit by bit."""

from __future__ import annotations

import pytest
import torch

from kernforge.testing import assert_bitwise, load_beside, op_tests

FLOATS = ("float32", "float16", "bfloat16", "float64")
INTEGERS = ("int8", "int16", "int32", "int64", "uint8")
UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
FEW_VIEWS = ("transposed", "every second", "one repeated", "1 elements in")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
per_float = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in FLOATS], ids=FLOATS)
per_order = pytest.mark.parametrize("descending", [False, True], ids=["up", "down"])

TestFloats = op_tests(
    op="sort",
    reference=reference.sort,
    inputs=lambda draw, shape: (draw(shape),),
    shapes=cases.SHAPES,
    dtypes=FLOATS,
    views=FEW_VIEWS,
    backward=True,
    second_backward=True,
)
TestIntegers = op_tests(
    op="sort",
    reference=reference.sort,
    inputs=lambda draw, shape: (draw(shape), 0, True),
    shapes={name: shape for name, shape in cases.SHAPES.items() if len(shape) == 2},
    dtypes=INTEGERS,
    views=("transposed",),
    leave_out={
        "special_values": "integers have none",
        "gradients": "of integers there are none",
        "compiled_gradients": "of integers there are none",
    },
)
TestTopK = op_tests(
    op="topk",
    reference=reference.topk,
    inputs=lambda draw, shape: (draw(shape), min(shape[-1], 9)),
    shapes={name: cases.SHAPES[name] for name in ("less than a thread's", "a block's, and a tail")},
    dtypes=("float32", "bfloat16"),
    views=("transposed",),
    backward=True,
    second_backward=True,
)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(11)


def bits(t):
    """The tensor as integers, so that NaN has a value."""
    same_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return t.contiguous().view(same_size[t.element_size()])


def check(kernel, x, descending, dim=-1):
    got = kernel.sort(x, dim, descending)
    want = reference.sort(x.cpu(), dim, descending)
    assert_bitwise(got.indices.cpu(), want[1])
    assert_bitwise(bits(got.values).cpu(), bits(want[0]))


# Rows that are hard for words that hold a part of a key.
HARD = {
    "all equal": lambda n: torch.full((3, n), 1.5),
    "in order": lambda n: torch.arange(3 * n).view(3, n) / 7,
    "backwards": lambda n: -torch.arange(3 * n).view(3, n) / 7,
    "two values": lambda n: torch.randint(0, 2, (3, n)) * 0.37,
    "a third is zero, of both signs": lambda n: torch.randn(3, n) * torch.randint(-1, 2, (3, n)),
    "rectified": lambda n: torch.randn(3, n).relu(),
    "near to each other, and one far": lambda n: torch.cat(
        [1 + torch.rand(3, n - 1) / 1000, torch.full((3, 1), -1e30)], 1
    ),
    "groups of a few": lambda n: torch.randn(3, n).bfloat16().float() + torch.rand(3, n) * 1e-6,
    "not finite": lambda n: torch.tensor(
        [float("nan"), -float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1.0, -1.0]
    )[torch.randint(0, 8, (3, n))],
    "subnormal": lambda n: torch.randn(3, n) * 1e-42,
    "of every magnitude": lambda n: torch.randn(3, n) * torch.exp2(torch.randn(3, n) * 40),
    "as large as can be": lambda n: torch.randn(3, n).clamp(-1, 1) * 3.4e38,
}


@per_order
@per_float
@pytest.mark.parametrize("name", HARD)
def test_hard_rows(kernel, device, name, dtype, descending):
    for n in (60, 1024, 2500) if device == "cpu" else (60, 128, 1024, 2500, 9000, 20_000):
        check(kernel, HARD[name](n).to(dtype).to(device), descending)


@per_order
@per_float
@pytest.mark.parametrize("n", [256, 300, 1024, 4096])
def test_rows_of_one_call_may_be_spread_evenly_or_not(kernel, device, n, dtype, descending):
    rows = [torch.randn(1, n)[0] if i % 3 else HARD["rectified"](n)[i % 2] for i in range(9)]
    check(kernel, torch.stack(rows).to(dtype).to(device), descending)
    rows = [torch.randn(n) * 50 if i % 3 else torch.full((n,), 7.0) for i in range(9)]
    check(kernel, torch.stack(rows).to(torch.int8).to(device), descending)


@per_order
@pytest.mark.parametrize("dtype", UNSIGNED, ids=str)
def test_unsigned_integers(kernel, device, dtype, descending):
    signed = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}[
        dtype
    ]
    info = torch.iinfo(signed)
    x = torch.randint(info.min, info.max, (5, 300), dtype=signed)
    got = kernel.sort(x.view(dtype).to(device), -1, descending)
    assert got.values.dtype == dtype
    # With the sign turned, signed integers have the order of unsigned ones.
    indices = reference.sort(x ^ info.min, -1, descending)[1]
    assert_bitwise(got.indices.cpu(), indices)
    assert_bitwise(got.values.cpu().view(signed), x.gather(-1, indices))


@per_order
def test_bool(kernel, device, descending):
    check(kernel, (torch.rand(4, 700) < 0.3).to(device), descending)


@per_order
def test_integers_of_a_small_range_and_of_the_whole(kernel, device, descending):
    for n in (200, 3000):
        check(kernel, torch.randint(-40, 1000, (3, n), device=device), descending)
        check(kernel, torch.randint(-40, 1000, (3, n), device=device).int(), descending)
        edges = torch.tensor([torch.iinfo(torch.int64).min, -1, 0, torch.iinfo(torch.int64).max])
        check(kernel, edges[torch.randint(0, 4, (3, n))].to(device), descending)


@pytest.mark.parametrize("dim", [0, 1, -2, 3])
def test_any_dimension(kernel, device, dim):
    x = torch.randn(3, 40, 2, 5, device=device)
    check(kernel, x, False, dim)
    check(kernel, x.transpose(0, 2)[:, ::2], True, dim)


def test_a_scalar(kernel, device):
    x = torch.tensor(2.5, device=device, requires_grad=True)
    values, indices = kernel.sort(x, 0)
    assert (values.shape, indices.shape, indices.item()) == ((), (), 0)
    values.backward()
    assert x.grad.item() == 1
    assert kernel.topk(x, 1).values.item() == 2.5


def test_stable_is_taken_and_changes_nothing(kernel, device):
    x = torch.randint(0, 9, (4, 333), device=device).float()
    for one, other in zip(kernel.sort(x, stable=True), kernel.sort(x), strict=True):
        assert_bitwise(one, other)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 1, 7, 128])
def test_topk_has_the_lowest_indices_of_equal_ones(kernel, device, k, largest):
    for shape in ((5, 128), (3, 1000), (2, 3, 2048), (2, 40_000)):
        for x in (torch.randn(shape), torch.randint(-9, 9, shape).half()):
            given = x.to(device)
            got = kernel.topk(given, k, largest=largest)
            want = reference.topk(x, k, largest=largest)
            assert_bitwise(got.values.cpu(), want[0].contiguous())
            assert_bitwise(got.indices.cpu(), want[1].contiguous())
    check_dim = kernel.topk(given.t(), min(k, 2), 0, largest)
    assert_bitwise(check_dim.indices.cpu(), reference.topk(x.t(), min(k, 2), 0, largest)[1])


@gpu
@pytest.mark.gpu
@per_order
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.int8], ids=str)
@pytest.mark.parametrize("shape", cases.LARGE.values(), ids=cases.LARGE)
def test_long_rows_and_many(kernel, device, dtype, shape, descending):
    check(kernel, (torch.randn(shape, device=device) * 50).to(dtype), descending)


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("k", [1, 50, 128, 513])
def test_topk_of_long_rows(kernel, device, dtype, k):
    for shape in ((3, 16_385), (2, 131_072), (1, 3_000_001)):
        drawn = torch.randn(shape, device=device).to(dtype)
        for x in (drawn, drawn.relu()):
            got = kernel.topk(x, k)
            want = reference.topk(x.cpu(), k)
            assert_bitwise(got.values.cpu(), want[0].contiguous())
            assert_bitwise(got.indices.cpu(), want[1].contiguous())


def test_the_gradient_goes_where_the_element_came_from(kernel, device):
    x = torch.randn(3, 40, device=device, dtype=torch.float64, requires_grad=True)
    weights = torch.randn(3, 7, device=device, dtype=torch.float64)
    got = kernel.topk(x, 7)
    (slope,) = torch.autograd.grad((got.values * weights).sum(), x)
    want = torch.zeros_like(x).scatter(-1, got.indices, weights)
    assert_bitwise(slope, want.detach())
    assert not got.indices.requires_grad


def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device):
    x = torch.randn(3, 40, device=device, requires_grad=True)
    with torch.no_grad():
        assert not kernel.sort(x).values.requires_grad


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda k, x: k.sort(x.to(torch.complex64)), ValueError, "a float type, .* got Complex"),
        (lambda k, x: k.sort(x, 2), IndexError, r"from -2 to 1 of \[4, 6\], got 2"),
        (lambda k, x: k.sort(x[0, 0], 1), IndexError, "-1 or 0 of a scalar, got 1"),
        (lambda k, x: k.topk(x, 7), ValueError, "size of the dimension, 6, got 7"),
        (lambda k, x: k.topk(x, -1), ValueError, "size of the dimension, 6, got -1"),
    ],
)
def test_refusals_say_the_value(kernel, device, call, error, message):
    with pytest.raises(error, match=message):
        call(kernel, torch.randn(4, 6, device=device))


@gpu
@pytest.mark.gpu
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.sort(torch.randn(4, 6, device=other))

# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, rounded once, whatever the length, place and strides."""

from __future__ import annotations

import pytest
import torch

from kernforge.testing import VIEWS, load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16", "float64")
ALPHA = 1.75  # exact in every dtype


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", DTYPES)

TestReluScale = op_tests(
    op="relu_scale",
    reference=lambda x, alpha: torch.where(x < 0, 0.0, x) * alpha,
    inputs=lambda draw, shape: (draw(shape), ALPHA),
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    backward=True,
    second_backward=True,
    elementwise=True,
    large=(2**31 + 1029,),
)

TestInPlace = op_tests(
    op="relu_scale_",
    reference=lambda x, alpha: torch.where(x < 0, 0.0, x) * alpha,
    inputs=lambda draw, shape: (draw.inplace(shape), ALPHA),
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    views=tuple(view for view in VIEWS if view != "one repeated"),  # it shares memory
    elementwise=True,
)

# The backward op by itself, on tensors that are large enough for the GPU's larger blocks.
TestBackward = op_tests(
    op="_backward",
    reference=reference.relu_scale_backward,
    inputs=lambda draw, shape: (draw(shape), draw(shape), ALPHA),
    shapes={"large, and a tail": (1031, 131)},
    dtypes=("float32", "bfloat16"),
    views=("transposed", "cropped", "1 elements in"),
)


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random(*shape, dtype="float32", device="cpu"):
    return torch.randn(*shape, device=device).to(getattr(torch, dtype))


@per_dtype
@pytest.mark.parametrize("alpha", [1.7, -0.3, 0.0, 1e-4])
def test_the_bits_are_torchs(kernel, device, dtype, alpha):
    x = random(4099, dtype=dtype, device=device)
    assert torch.equal(kernel.relu_scale(x, alpha), torch.relu(x) * alpha)


@per_dtype
@pytest.mark.parametrize("length", cases.LARGE.values(), ids=cases.LARGE)
def test_large_at_every_misalignment(kernel, device, dtype, length):
    buffer = random(length + 32, dtype=dtype, device=device)
    for start in (0, 1, 3, 8):
        x = buffer[start : start + length]
        want = torch.relu(x) * ALPHA
        assert torch.equal(kernel.relu_scale(x, ALPHA), want)
        written = buffer.clone()
        kernel.relu_scale_(written[start : start + length], ALPHA)
        assert torch.equal(written[start : start + length], want)
        assert torch.equal(written[:start], buffer[:start])
        assert torch.equal(written[start + length :], buffer[start + length :])


@per_dtype
def test_gradient_at_special_values_is_torchs(kernel, device, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 65504.0, -1.0, 6e-8], device=device)
    leaf, twin = (x.to(getattr(torch, dtype)).requires_grad_() for _ in range(2))
    kernel.relu_scale(leaf, 2.0).sum().backward()
    (torch.relu(twin) * 2.0).sum().backward()
    assert torch.equal(leaf.grad, twin.grad)


@pytest.mark.parametrize("view", [*cases.VIEWS, *cases.EXPANDED])
def test_strides_are_those_that_torch_would_choose(kernel, device, view):
    x = {**cases.VIEWS, **cases.EXPANDED}[view](random(12, 18, 20, device=device))
    got = kernel.relu_scale(x, ALPHA)
    assert torch.equal(got, torch.relu(x) * ALPHA)
    assert got.stride() == torch.empty_like(x).stride()


@pytest.mark.parametrize("view", cases.VIEWS)
def test_in_place_writes_the_view_and_nothing_else(kernel, device, view):
    whole = random(12, 18, 20, device=device)
    expected = whole.clone()
    part = cases.VIEWS[view](expected)
    part.copy_(torch.relu(part) * ALPHA)
    x = cases.VIEWS[view](whole)
    assert kernel.relu_scale_(x, ALPHA) is x
    assert torch.equal(whole, expected)


def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device):
    x = random(4, device=device).requires_grad_()
    with torch.no_grad():
        assert not kernel.relu_scale(x, ALPHA).requires_grad
        kernel.relu_scale_(x, ALPHA)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k.relu_scale(x.int()), "must be float32, .* got Int"),
        (lambda k, x: k.relu_scale_(x.bool()), "must be float32, .* got Bool"),
        (lambda k, x: k.relu_scale_(x.requires_grad_()), "use relu_scale"),
        (lambda k, x: k.relu_scale_(x[:1].expand(3, -1)), r"stride 0 in dimension 0"),
        (lambda k, x: k._backward(x[:1], x, 1.0), r"\[4, 6\], got \[1, 6\]"),
        (lambda k, x: k._backward(x.half(), x, 1.0), "Float like x, got Half"),
    ],
)
def test_refusals_say_the_value(kernel, device, call, message):
    with pytest.raises(ValueError, match=message):
        call(kernel, random(4, 6, device=device))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.relu_scale(random(4, device=other))

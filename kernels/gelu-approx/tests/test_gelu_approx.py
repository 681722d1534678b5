# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, near enough to say how near."""

from __future__ import annotations

import math

import pytest
import torch

from kernforge.testing import assert_bitwise, load_beside, op_tests, ulp

DTYPES = ("float32", "float16", "bfloat16", "float64")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)

TestGeluApprox = op_tests(
    op="gelu_approx",
    reference=reference.gelu_approx,
    inputs=lambda draw, shape: (draw(shape),),
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    backward=True,
    second_backward=True,
    elementwise=True,
    large=(2**31 + 1029,),
)


def everything(dtype, device):
    """Every number of a half type; of a wider one every 4,099th float32."""
    if dtype.itemsize == 2:
        bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).short()
        return bits.view(dtype).to(device)
    bits = torch.arange(-(2**31), 2**31, 4099, dtype=torch.int64).int()
    return bits.view(torch.float32).to(device, dtype)


# Largest error in units in the last place. In float32, exp(-2 u) is what errs: it is the result
# where x is far below 0. What the reference has below `least` may be 0.
ULPS = {torch.float32: 10.0, torch.float16: 0.51, torch.bfloat16: 0.51, torch.float64: 64.0}
TAIL_ULPS = 64.0  # float32 below -4.7, where y is above -1e-9


@per_dtype
def test_the_error_that_is_stated(kernel, device, dtype):
    x = everything(dtype, device)
    x = x[x.isfinite()]
    exact = reference.gelu_approx(x.double())
    off = (kernel.gelu_approx(x).double() - exact).abs() / ulp(exact, dtype)
    least = {torch.float32: 2.0**-122, torch.float64: 1e-150}.get(dtype, 0.0)
    off = off[(exact.abs() >= least) | (x.abs() < 1)]
    tail = (x < -4.7)[(exact.abs() >= least) | (x.abs() < 1)]
    assert off[~tail].max().item() <= ULPS[dtype]
    if dtype == torch.float32:
        assert off[tail].max().item() <= TAIL_ULPS
    small = exact.abs() < least
    assert (
        kernel.gelu_approx(x)[small].abs().double().max().item() <= least if small.any() else True
    )


@per_dtype
def test_limits(kernel, device, dtype):
    inf, nan = math.inf, math.nan
    big = torch.finfo(dtype).max
    x = torch.tensor([-inf, inf, nan, -0.0, 0.0, -big, big, -100.0, 100.0], dtype=dtype)
    x = x.to(device)
    want = torch.tensor([-0.0, inf, nan, -0.0, 0.0, -0.0, big, -0.0, 100.0], dtype=dtype)
    got = kernel.gelu_approx(x)
    assert_bitwise(got.nan_to_num(7.0).cpu(), want.nan_to_num(7.0))
    assert bool(got[2].isnan())
    leaf = x.requires_grad_()
    kernel.gelu_approx(leaf).sum().backward()
    slope = torch.tensor([0.0, 1.0, 7.0, 0.5, 0.5, 0.0, 1.0, 0.0, 1.0], dtype=dtype)
    assert torch.equal(leaf.grad.nan_to_num(7.0).cpu(), slope)


@per_dtype
def test_torchs_own_is_the_same_function(kernel, device, dtype):
    """Whose 1 + tanh(u) cancels for x far below 0, so that ours is the nearer one there."""
    x = torch.linspace(-6, 6, 100_003, dtype=torch.float64).to(device, dtype)
    theirs = torch.nn.functional.gelu(x, approximate="tanh")
    ours = kernel.gelu_approx(x)
    torch.testing.assert_close(ours, theirs)
    exact, low = reference.gelu_approx(x.double()), x < -3
    ours, theirs = ((one.double() - exact).abs()[low].max() for one in (ours, theirs))
    assert ours <= theirs


def test_the_second_gradient_is_near_where_the_sigmoid_is_near_1(kernel, device):
    x = torch.linspace(-12, 12, 24_001, device=device, requires_grad=True)
    wide = x.detach().double().requires_grad_()
    got, want = (
        torch.autograd.grad(torch.autograd.grad(f(a).sum(), a, create_graph=True)[0].sum(), a)[0]
        for f, a in ((kernel.gelu_approx, x), (reference.gelu_approx, wide))
    )
    # A formula with 1 - sigmoid(u) for u > 0 is off by 1.2e-5.
    assert (got.double() - want).abs().max().item() <= 5e-7


@per_dtype
@pytest.mark.parametrize("length", [1, 1027, (1 << 21) + 1029])
def test_gradient(kernel, device, dtype, length):
    source = torch.Generator().manual_seed(length)
    x, grad = (torch.randn(length, generator=source).to(device, dtype) * 3 for _ in range(2))
    x.requires_grad_()
    kernel.gelu_approx(x).backward(grad)
    want = reference.gelu_approx_backward(grad, x.detach())
    scale = grad.double().abs() * {2: 2e-3, 4: 4e-7, 8: 1e-14}[dtype.itemsize]
    if dtype == torch.bfloat16:
        scale *= 4
    assert bool(((x.grad.double() - want).abs() <= scale + 6e-8).all())


def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device):
    x = torch.randn(4, device=device).requires_grad_()
    with torch.no_grad():
        assert not kernel.gelu_approx(x).requires_grad


@pytest.mark.parametrize("view", cases.VIEWS)
def test_the_result_is_laid_out_as_torchs_are(kernel, device, view):
    x = cases.VIEWS[view](torch.randn(12, 18, 20, device=device))
    assert kernel.gelu_approx(x).stride() == torch.empty_like(x).stride()


@per_dtype
@pytest.mark.parametrize("dims", [1, 2, 3, 6, 7])
def test_values_do_not_depend_on_the_layout(kernel, device, dtype, dims):
    every_second = (slice(None, 5, 2),) * dims
    x, grad = (torch.randn((6,) * dims, device=device).to(dtype)[every_second] for _ in range(2))
    x = x.permute(*reversed(range(dims)))
    for one in (grad, grad[:1].expand_as(x)):
        got = kernel.gelu_approx(x), kernel._backward(one, x)
        want = (
            kernel.gelu_approx(x.contiguous()),
            kernel._backward(one.contiguous(), x.contiguous()),
        )
        assert all(map(torch.equal, got, want))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda k, x: k.gelu_approx(x.int()), "must be float32, .* got Int"),
        (lambda k, x: k._backward(x[:1], x), r"\[4, 6\], got \[1, 6\]"),
        (lambda k, x: k._backward(x.half(), x), "Float like x, got Half"),
    ],
)
def test_refusals_say_the_value(kernel, device, call, message):
    with pytest.raises(ValueError, match=message):
        call(kernel, torch.randn(4, 6, device=device))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.gelu_approx(torch.randn(4, device=other))

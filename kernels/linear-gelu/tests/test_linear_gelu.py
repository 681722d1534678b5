# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, near enough to say how near."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.testing import assert_bitwise, load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16", "float64")
FORMULAS = ("tanh", "none")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
per_formula = pytest.mark.parametrize("approximate", FORMULAS)
# torch says so where the first product of a process is one of a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


def _inputs(draw, shape):
    rows, depth, columns = shape
    return draw((rows, depth)), draw((columns, depth)), draw((columns,))


def _scaled(function, approximate):
    """An eighth of the weight, exactly: sums of the size of 1, not far in the tail of GELU."""
    return lambda x, weight, bias: function(x, weight * 0.125, bias, approximate=approximate)


def _tests(approximate, shapes):
    return op_tests(
        op="linear_gelu",
        call=lambda op, *given: _scaled(op, approximate)(*given),
        reference=_scaled(reference.linear_gelu, approximate),
        inputs=_inputs,
        shapes=shapes,
        dtypes=DTYPES,
        backward=True,
        second_backward=True,
        factor=16.0,  # sums that cancel, of a few rows
        leave_out={"special_values": "sums that overflow do so elsewhere in float64"},
    )


TestTanh = _tests("tanh", cases.SHAPES)
TestErf = _tests(
    "none", {name: cases.SHAPES[name] for name in ("one row", "tiles of 64 columns and tails")}
)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(11)


@pytest.fixture(autouse=True)
def _exact_floats():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def drawn(shape, dtype, device, seed=7):
    """x, weight and bias whose products are of the size of 1."""
    rows, depth, columns = shape
    source = torch.Generator().manual_seed(seed)
    x, weight, bias = (
        torch.randn(size, generator=source, dtype=torch.float64)
        for size in ((rows, depth), (columns, depth), (columns,))
    )
    weight = weight * 1.5 / max(depth, 1) ** 0.5
    return tuple(t.to(device, dtype) for t in (x, weight, bias))


def off(got, exact):
    """The distance of the whole, in shares of the exact result."""
    return ((got.double() - exact).norm() / exact.norm()).item()


# The rounding of the result alone is 1.7e-3 of it in bfloat16 and 2.1e-4 in float16. On a CPU torch
# rounds the product before GELU.
NEAR = {torch.float32: 2e-6, torch.float16: 6e-4, torch.bfloat16: 6e-3, torch.float64: 1e-14}


@per_formula
@per_dtype
@pytest.mark.parametrize("shape", [cases.SHAPES["tiles of 64 columns and tails"]], ids=str)
def test_the_error_that_is_stated(kernel, device, dtype, approximate, shape):
    x, weight, bias = drawn(shape, dtype, device)
    exact = reference.linear_gelu(x.double(), weight.double(), bias.double(), approximate)
    assert off(kernel.linear_gelu(x, weight, bias, approximate), exact) <= NEAR[dtype]


@gpu
@pytest.mark.gpu
@per_formula
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", cases.LARGE.values(), ids=cases.LARGE)
def test_large_sizes_and_their_gradients(kernel, device, dtype, approximate, shape):
    given = drawn(shape, dtype, device)
    exact = [t.double().requires_grad_() for t in given]
    want = reference.linear_gelu(*exact, approximate)
    assert off(kernel.linear_gelu(*given, approximate), want) <= NEAR[dtype]
    leaves = [t.requires_grad_() for t in given]
    got = kernel.linear_gelu(*leaves, approximate)
    grad = torch.randn(want.shape, device=device).to(dtype)
    slopes = torch.autograd.grad(got, leaves, grad)
    right = torch.autograd.grad(want, exact, grad.double())
    near = {torch.float32: 4e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert off(got, want) <= NEAR[dtype]
    for one, other in zip(slopes, right, strict=True):
        assert off(one, other) <= near


@gpu
@pytest.mark.gpu
@per_formula
@pytest.mark.parametrize(
    "shape", [(16, 512, 8200), (32, 768, 3072), (300, 520, 8200), (1000, 328, 8200)], ids=str
)
def test_tf32_is_used_where_it_is_allowed(kernel, device, approximate, shape):
    given = drawn(shape, torch.float32, device)
    exact = reference.linear_gelu(*(t.double() for t in given), approximate)
    errors = {}
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        errors[allowed] = off(kernel.linear_gelu(*given, approximate), exact)
    assert errors[False] <= 2e-6
    assert 1e-5 <= errors[True] <= 1e-3


@per_formula
@per_dtype
def test_without_a_bias(kernel, device, dtype, approximate):
    x, weight, _ = drawn((33, 64, 48), dtype, device)
    exact = reference.linear_gelu(x.double(), weight.double(), None, approximate)
    assert off(kernel.linear_gelu(x, weight, approximate=approximate), exact) <= NEAR[dtype]
    weight.requires_grad_()
    kernel.linear_gelu(x, weight, approximate=approximate).sum().backward()
    assert weight.grad is not None


@pytest.mark.parametrize(
    "size", [(64,), (2, 3, 64), (1, 1, 64), (0, 3, 64), (4, 0, 64), (2, 5, 7, 64)], ids=str
)
def test_leading_dimensions(kernel, device, size):
    _, weight, bias = drawn((1, 64, 40), torch.float32, device)
    x = torch.randn(size, device=device)
    got = kernel.linear_gelu(x, weight, bias)
    want = reference.linear_gelu(x, weight, bias)
    assert got.shape == want.shape
    assert got.is_contiguous()
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


LAYOUTS = {
    "rows with a gap": lambda t: t[:, :64],
    "rows with a gap, not on 16 bytes": lambda t: t[:, 1:65],
    "every second row": lambda t: t[::2, :64],
    "one row for all": lambda t: t[:1, :64].expand(40, -1),
    "transposed": lambda t: t[:64, :40].t(),
    "every second column": lambda t: t[:40, : 2 * 36 : 2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("weight_layout", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(kernel, device, dtype, layout, weight_layout):
    x = LAYOUTS[layout](torch.randn(80, 136, device=device).to(dtype))
    weight = LAYOUTS[weight_layout](torch.randn(80, 136, device=device).to(dtype) / 8)
    depth = min(x.shape[1], weight.shape[1])
    x, weight = x[:, :depth], weight[:, :depth]
    exact = reference.linear_gelu(x.double(), weight.double(), None)
    assert off(kernel.linear_gelu(x, weight), exact) <= NEAR[dtype]


def test_three_dimensions_with_gaps_are_one_or_are_copied(kernel, device):
    weight = torch.randn(48, 64, device=device) / 8
    for x in (
        torch.randn(4, 5, 80, device=device)[..., :64],
        torch.randn(4, 9, 64, device=device)[:, 2:7],
        torch.randn(5, 4, 64, device=device).transpose(0, 1),
        torch.randn(1, 5, 64, device=device).expand(4, -1, -1),
    ):
        exact = reference.linear_gelu(x.double(), weight.double(), None)
        assert off(kernel.linear_gelu(x, weight), exact) <= 1e-6


@per_formula
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_large_and_missing_numbers(kernel, device, dtype, approximate):
    """The identity as the weight, so that GELU has these numbers as they are."""
    inf, nan = float("inf"), float("nan")
    numbers = [0.0, -0.0, 1.0, -1.0, 50.0, -50.0, 6e4, -6e4, inf, nan, -inf]
    x = torch.tensor(numbers, dtype=dtype, device=device)[:, None].expand(-1, 1).contiguous()
    weight = torch.ones(8, 1, dtype=dtype, device=device)
    got = kernel.linear_gelu(x, weight, None, approximate)
    want = torch.nn.functional.gelu(x.double(), approximate=approximate).expand(-1, 8)
    torch.testing.assert_close(got.double(), want, rtol=1e-2, atol=1e-4, equal_nan=True)


@per_formula
@per_dtype
@pytest.mark.parametrize("shape", [(1, 1), (37, 129), (300, 1024), (0, 8)], ids=str)
def test_slope_and_its_sums(kernel, device, dtype, approximate, shape):
    source = torch.Generator().manual_seed(3)
    z, grad = (torch.randn(shape, generator=source).to(device, dtype) * 3 for _ in range(2))
    dz, sums = kernel.functional._slope(grad, z, approximate == "tanh", True)
    wide = z.double().requires_grad_()
    torch.nn.functional.gelu(wide, approximate=approximate).backward(grad.double())
    eps = torch.finfo(dtype).eps
    scale = grad.double().abs()
    assert bool(((dz.double() - wide.grad).abs() <= scale * 8 * eps + 1e-7).all())
    bound = scale.sum(0) * 8 * eps + 1e-6
    assert bool(((sums.double() - wide.grad.sum(0)).abs() <= bound).all())
    assert kernel.functional._slope(grad, z, True, False)[1].shape == (0,)


def test_autocast_casts_as_linear_does(kernel, device):
    x, weight, bias = drawn((9, 64, 48), torch.float32, device)
    weight.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        y = kernel.linear_gelu(x, weight, bias)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert weight.grad.dtype == torch.float32


def test_the_layer_takes_the_place_of_a_models(kernel, device):
    class Mlp(torch.nn.Linear):
        approximate = "none"

    layer = Mlp(64, 48, device=device)
    x = torch.randn(5, 64, device=device)
    got = kernel.layers.LinearGELU.forward(layer, x)
    torch.testing.assert_close(got, torch.nn.functional.gelu(layer(x)), rtol=1e-5, atol=1e-5)
    del Mlp.approximate
    by_tanh = torch.nn.functional.gelu(layer(x), approximate="tanh")
    got = kernel.layers.LinearGELU.forward(layer, x)
    torch.testing.assert_close(got, by_tanh, rtol=1e-5, atol=1e-5)


def test_kernelize_puts_the_layer_into_a_model(kernel, device):
    class LinearGELU(torch.nn.Linear):
        def forward(self, x):
            return torch.nn.functional.gelu(super().forward(x), approximate="tanh")

    named = kernforge.use_kernel_forward_from_hub("LinearGELU")(LinearGELU)
    model = torch.nn.Sequential(named(64, 48), named(48, 8)).to(device)
    x = torch.randn(5, 64, device=device)
    want = model(x)
    builds = Path(kernel.__file__).parents[1]
    repository = kernforge.LocalLayerRepository(builds, layer_name="LinearGELU")
    with kernforge.use_kernel_mapping({"LinearGELU": {device: repository}}):
        replaced = kernforge.kernelize(model, mode=kernforge.Mode.TRAINING, device=device)
    got = replaced(x)
    assert replaced[0].forward.__func__ is not LinearGELU.forward
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    assert all(one.grad is not None for one in replaced.parameters())


def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device):
    x, weight, bias = drawn((3, 64, 48), torch.float32, device)
    weight.requires_grad_()
    with torch.no_grad():
        assert not kernel.linear_gelu(x, weight, bias).requires_grad
    x.requires_grad_()
    only_x = kernel.linear_gelu(x, weight.detach(), bias)
    (slope,) = torch.autograd.grad(only_x.sum(), x)
    assert slope.shape == x.shape


def test_with_and_without_a_gradient_the_bits_are_the_same(kernel, device):
    for dtype in (torch.float32, torch.bfloat16):
        for rows in (3, 40, 200):
            x, weight, bias = drawn((rows, 136, 64), dtype, device)
            recorded = kernel.linear_gelu(x, weight.clone().requires_grad_(), bias)
            assert_bitwise(recorded.detach(), kernel.linear_gelu(x, weight, bias))


REFUSED = {
    "dtype": (lambda x, w, _: (x.int(), w.int()), "float32, .* got Int"),
    "dtype of weight": (lambda x, w, b: (x, w.half(), b), "weight must be Float like x, got Half"),
    "dtype of bias": (lambda x, w, b: (x, w, b.half()), "bias must be Float like x, got Half"),
    "vector": (lambda x, w, b: (x, w[0], b), r"weight must be \[out_f.*\], got \[6\]"),
    "depth": (lambda x, w, b: (x[:, 1:], w, b), r"in_features .* 6, got \[4, 5\]"),
    "scalar": (lambda x, w, b: (x[0, 0], w, b), r"in_features .* 6, got \[\]"),
    "bias": (lambda x, w, b: (x, w, b[1:]), r"bias must be \[3\], got \[2\]"),
    "formula": (lambda x, w, b: (x, w, b, "erf"), "'tanh' or 'none', got 'erf'"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_the_value(kernel, device, given, message):
    tensors = (torch.randn(size, device=device) for size in ((4, 6), (3, 6), (3,)))
    with pytest.raises(ValueError, match=message):
        kernel.linear_gelu(*given(*tensors))


def test_the_slope_refuses_another_shape(kernel, device):
    z = torch.randn(4, 6, device=device)
    with pytest.raises(ValueError, match=r"shape of z \[4, 6\], a matrix, got \[1, 6\]"):
        kernel.functional._slope(z[:1], z, True, True)


@gpu
@pytest.mark.gpu
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.linear_gelu(torch.randn(4, 6, device=other), torch.randn(3, 6, device=other))

# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, near enough to say how near."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.testing import assert_bitwise, load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16", "float64")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
ACTIVATIONS = tuple(reference.ACTIVATIONS)
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
per_activation = pytest.mark.parametrize("activation", ACTIVATIONS, ids=str)
# torch says so where the first product of a process is one of a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


def _inputs(draw, shape):
    rows, depth, columns = shape
    return draw((rows, depth)), draw((depth, columns)), draw((columns,))


TestMatmul = op_tests(
    op="matmul",
    call=lambda op, a, b, bias: op(a, b, bias=bias),
    reference=reference.matmul,
    inputs=_inputs,
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    backward=True,
    second_backward=True,
    factor=16.0,  # sums that cancel, of a few rows
    leave_out={"special_values": "sums that overflow do so elsewhere in float64"},
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


def drawn(shape, dtype, device, batch=()):
    """a, b, bias and residual whose products are of the size of 1."""
    rows, depth, columns = shape
    sizes = ((*batch, rows, depth), (*batch, depth, columns), (columns,), (*batch, rows, columns))
    a, b, bias, residual = (torch.randn(size, dtype=torch.float64) for size in sizes)
    b = b / max(depth, 1) ** 0.5
    return tuple(t.to(device, dtype) for t in (a, b, bias, residual))


def off(got, exact):
    """The distance of the whole, in shares of the exact result."""
    return ((got.double() - exact).norm() / exact.norm()).item()


def doubles(*given):
    return [t.double() if isinstance(t, torch.Tensor) else t for t in given]


# The rounding of the result alone is 1.7e-3 of it in bfloat16 and 2.1e-4 in float16. On a CPU torch
# rounds the product before what follows.
NEAR = {torch.float32: 3e-6, torch.float16: 6e-4, torch.bfloat16: 6e-3, torch.float64: 1e-14}
LAYOUTS = {
    "rows": lambda rows, columns, made: made(rows, columns),
    "transposed": lambda rows, columns, made: made(columns, rows).mT,
    "rows with a gap": lambda rows, columns, made: made(rows, columns + 24)[..., :columns],
    "transposed with a gap": lambda rows, columns, made: made(columns, rows + 8)[..., :rows].mT,
    "not on 16 bytes": lambda rows, columns, made: made(rows, columns + 1)[..., 1:],
    "every second row": lambda rows, columns, made: made(2 * rows, columns)[..., ::2, :],
    "every second column": lambda rows, columns, made: made(rows, 2 * columns)[..., ::2],
    "one row for all": lambda rows, columns, made: made(1, columns).expand(rows, columns),
}


@per_activation
@per_dtype
def test_the_error_that_is_stated(kernel, device, dtype, activation):
    a, b, bias, residual = drawn(cases.SHAPES["tiles of 64 columns and tails"], dtype, device)
    exact = reference.matmul(*doubles(a, b, bias, activation, residual))
    got = kernel.matmul(a, b, bias=bias, activation=activation, residual=residual)
    assert off(got, exact) <= NEAR[dtype]


def test_the_product_alone_is_rounded_once(kernel, device):
    # cuBLAS may split a small product and round its parts.
    shape = cases.LARGE["tiles of 256 columns"] if device == "cuda" else (130, 200, 136)
    for dtype in (torch.float16, torch.bfloat16):
        a, b, *_ = drawn(shape, dtype, device)
        exact = a.double() @ b.double()
        assert off(kernel.matmul(a, b), exact) <= 1.01 * off(exact.to(dtype), exact)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout_b", LAYOUTS)
@pytest.mark.parametrize("layout_a", LAYOUTS)
def test_strides(kernel, device, dtype, layout_a, layout_b):
    def made(rows, columns):
        return torch.randn(rows, columns, device=device).to(dtype)

    for rows, depth, columns in ((33, 24, 40), (144, 200, 272)):
        a, b = LAYOUTS[layout_a](rows, depth, made), LAYOUTS[layout_b](depth, columns, made)
        assert off(kernel.matmul(a, b), a.double() @ b.double()) <= NEAR[dtype]


BATCHES = {
    "the same": ((3,), (3,)),
    "two dimensions": ((2, 3), (2, 3)),
    "one b for all": ((4,), ()),
    "one a for all": ((), (4,)),
    "one b, two dimensions": ((2, 3), (1, 1)),
    "crossed": ((2, 1), (1, 3)),
    "inner": ((2, 3), (3,)),
    "none": ((0,), (0,)),
    "more than a grid has": ((70_000,), (70_000,)),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("of_a", "of_b"), BATCHES.values(), ids=BATCHES)
def test_leading_dimensions_broadcast(kernel, device, dtype, of_a, of_b):
    many = of_a == (70_000,)
    for rows, depth, columns in ((2, 8, 8),) if many else ((5, 16, 24), (136, 72, 264)):
        a = torch.randn(*of_a, rows, depth, device=device).to(dtype)
        b = torch.randn(*of_b, depth, columns, device=device).to(dtype)
        got = kernel.matmul(a, b)
        want = a.double() @ b.double()
        assert got.shape == want.shape
        if want.numel():
            assert off(got, want) <= NEAR[dtype]


@pytest.mark.parametrize("batch", [(), (3,), (2, 2)], ids=str)
def test_out_is_written_whatever_its_strides(kernel, device, batch):
    for dtype, columns in itertools.product((torch.float32, torch.bfloat16), (40, 41)):
        a, b, bias, _ = drawn((136, 64, columns), dtype, device, batch)
        want = kernel.matmul(a, b, bias=bias)
        for size in (0, 24, 3):
            memory = torch.full((*batch, 136, columns + size), -7.0, device=device, dtype=dtype)
            out = memory[..., :columns]
            assert kernel.matmul(a, b, out, bias=bias) is out
            assert off(out, want.double()) <= (1e-7 if size == 0 else NEAR[dtype])
            assert bool((memory[..., columns:] == -7).all())
        out = torch.empty(*batch, columns, 136, device=device, dtype=dtype).mT
        kernel.matmul(a, b, out=out, bias=bias)
        assert off(out, want.double()) <= NEAR[dtype]


def test_the_residual_broadcasts(kernel, device):
    a, b, *_ = drawn((9, 16, 24), torch.float32, device)
    for size in ((9, 24), (1, 24), (9, 1), (1, 1)):
        residual = torch.randn(size, device=device)
        want = a.double() @ b.double() + residual.double()
        assert off(kernel.matmul(a, b, residual=residual), want) <= 3e-6
    several = torch.randn(4, 9, 24, device=device)
    got = kernel.matmul(a.expand(4, -1, -1), b, residual=several)
    assert off(got, a.double() @ b.double() + several.double()) <= 3e-6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides_of_the_residual(kernel, device, dtype, layout):
    def made(rows, columns):
        return torch.randn(rows, columns, device=device).to(dtype)

    for shape in ((33, 24, 40), (144, 200, 272)):
        a, b, bias, _ = drawn(shape, dtype, device)
        residual = LAYOUTS[layout](shape[0], shape[2], made)
        exact = reference.matmul(*doubles(a, b, bias, "silu", residual))
        got = kernel.matmul(a, b, bias=bias, activation="silu", residual=residual)
        assert off(got, exact) <= NEAR[dtype]


FP8 = (torch.float8_e4m3fn, torch.float8_e5m2)


@pytest.mark.parametrize("out_dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("pair", list(itertools.product(FP8, FP8)), ids=str)
@pytest.mark.parametrize("batch", [(), (2,)], ids=str)
def test_products_of_fp8_with_scales(kernel, device, pair, out_dtype, batch):
    left, right = pair
    for rows, depth, columns in ((5, 16, 24), (130, 208, 136), (70, 33, 48)):
        a, b, bias, _ = drawn((rows, depth, columns), torch.float32, device, batch)
        a, b, bias = a.to(left), (4 * b).to(right), bias.to(out_dtype)
        for of_a, of_b in (((), ()), ((rows,), ()), ((rows,), (columns,))):
            scale_a = torch.rand(of_a, device=device) + 0.5
            scale_b = torch.rand(of_b, device=device) + 0.5
            exact = (a.double() @ b.double()) * scale_b.double()
            exact = exact * scale_a.double().view(-1, 1) + bias.double()
            for right_side in (b, b.mT.contiguous().mT):
                got = kernel.scaled_matmul(
                    a, right_side, scale_a, scale_b, bias=bias, out_dtype=out_dtype
                )
                assert got.dtype == out_dtype
                assert off(got, exact) <= NEAR[out_dtype]


@gpu
@pytest.mark.gpu
@per_activation
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("shape", cases.LARGE.values(), ids=cases.LARGE)
def test_large_sizes(kernel, device, dtype, activation, shape):
    a, b, bias, residual = drawn(shape, dtype, device)
    if activation is None:
        assert off(kernel.matmul(a, b), a.double() @ b.double()) <= NEAR[dtype]
    exact = reference.matmul(*doubles(a, b, bias, activation, residual))
    got = kernel.matmul(a, b, bias=bias, activation=activation, residual=residual)
    assert off(got, exact) <= NEAR[dtype]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize(
    "shape", [(304, 520, 8200), (1100, 1096, 8200), (4000, 520, 1032), (64, 64, 64)], ids=str
)
def test_every_order_of_both_operands(kernel, device, dtype, orders, shape):
    for batch in ((), (3,)):
        a, b, *_ = drawn(shape, dtype, device, batch)
        a = a.mT.contiguous().mT if orders[0] == "t" else a
        b = b.mT.contiguous().mT if orders[1] == "t" else b
        assert off(kernel.matmul(a, b), a.double() @ b.double()) <= NEAR[dtype]


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("orders", ["nn", "nt", "tn", "tt"])
@pytest.mark.parametrize("shape", [(512, 256, 520), (1100, 520, 8200), (1000, 333, 517)], ids=str)
def test_tf32_is_used_where_it_is_allowed(kernel, device, orders, shape):
    a, b, bias, residual = drawn(shape, torch.float32, device)
    a = a.mT.contiguous().mT if orders[0] == "t" else a
    b = b.mT.contiguous().mT if orders[1] == "t" else b
    exact = a.double() @ b.double()
    errors = {}
    for allowed in (False, True):
        torch.backends.cuda.matmul.allow_tf32 = allowed
        errors[allowed] = off(kernel.matmul(a, b), exact)
    assert errors[False] <= 2e-6
    assert 1e-5 <= errors[True] <= 1e-3
    exact = exact + bias.double()
    assert off(kernel.matmul(a, b, bias=bias), exact) <= 1e-3
    exact = torch.nn.functional.silu(exact) + residual.double()
    got = kernel.matmul(a, b, bias=bias, activation="silu", residual=residual)
    assert off(got, exact) <= 1e-3


@pytest.mark.parametrize("batch", [((), ()), ((3,), ()), ((2, 1), (1, 3))], ids=str)
def test_gradients_of_broadcast_operands(kernel, device, batch):
    of_a, of_b = batch
    a = torch.randn(*of_a, 5, 16, device=device, dtype=torch.float64, requires_grad=True)
    b = torch.randn(*of_b, 16, 8, device=device, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(8, device=device, dtype=torch.float64, requires_grad=True)
    for activation in ACTIVATIONS:
        got = kernel.matmul(a, b, bias=bias, activation=activation)
        residual = torch.randn_like(got).requires_grad_()
        got = kernel.matmul(a, b, bias=bias, activation=activation, residual=residual)
        want = reference.matmul(a, b, bias, activation, residual)
        leaves, grad = (a, b, bias, residual), torch.randn_like(want)
        slopes = torch.autograd.grad(got, leaves, grad)
        for one, other in zip(slopes, torch.autograd.grad(want, leaves, grad), strict=True):
            torch.testing.assert_close(one, other)


def test_the_gradient_of_a_weight_lies_as_the_weight_does(kernel, device):
    x = torch.randn(2, 5, 16, device=device).transpose(0, 1)
    weight = torch.randn(8, 16, device=device, requires_grad=True)
    grad = torch.randn(5, 2, 8, device=device)
    (got,) = torch.autograd.grad(kernel.matmul(x, weight.t()), weight, grad)
    assert got.is_contiguous()
    torch.testing.assert_close(got, torch.einsum("tsn,tsk->nk", grad, x))


def test_autocast_casts_as_matmul_does(kernel, device):
    a, b, bias, _ = drawn((9, 64, 48), torch.float32, device)
    b.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        y = kernel.matmul(a, b, bias=bias)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert b.grad.dtype == torch.float32


def test_kernelize_puts_the_layer_into_a_model(kernel, device):
    class Linear(torch.nn.Linear):
        pass

    named = kernforge.use_kernel_forward_from_hub("Linear")(Linear)
    model = torch.nn.Sequential(named(64, 48), named(48, 8, bias=False)).to(device)
    x = torch.randn(2, 5, 64, device=device)
    want = model(x)
    builds = Path(kernel.__file__).parents[1]
    repository = kernforge.LocalLayerRepository(builds, layer_name="Linear")
    with kernforge.use_kernel_mapping({"Linear": {device: repository}}):
        replaced = kernforge.kernelize(model, mode=kernforge.Mode.TRAINING, device=device)
    got = replaced(x)
    assert replaced[0].forward.__func__ is not torch.nn.Linear.forward
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    assert all(one.grad is not None for one in replaced.parameters())


def test_a_graph_of_the_whole_function(kernel, device):
    def block(a, b, bias):
        return kernel.matmul(kernel.matmul(a, b, bias=bias, activation="silu"), b.mT)

    a, b, bias, _ = drawn((9, 64, 48), torch.float32, device)
    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(a, b, bias), block(a, b, bias))


def test_with_and_without_a_gradient_the_bits_of_the_product_are_the_same(kernel, device):
    for dtype in (torch.float32, torch.bfloat16):
        a, b, bias, _ = drawn((40, 136, 64), dtype, device)
        recorded = kernel.matmul(a, b.clone().requires_grad_(), bias=bias)
        assert_bitwise(recorded.detach(), kernel.matmul(a, b, bias=bias))


REFUSED = {
    "dtype": (lambda a, b: ((a.int(), b.int()), {}), "float32, .* got Int"),
    "dtype of b": (lambda a, b: ((a, b.half()), {}), "b must be Float like a, got Half"),
    "vector": (lambda a, b: ((a[0], b), {}), r"a must be .*, got \[6\] and \[6, 3\]"),
    "depth": (lambda a, b: ((a[:, 1:], b), {}), r"got \[4, 5\] and \[6, 3\]"),
    "bias": (lambda a, b: ((a, b), {"bias": b[0, 1:]}), r"bias must be \[3\], got \[2\]"),
    "dtype of bias": (lambda a, b: ((a, b), {"bias": b[0].half()}), "bias must be Float, got Half"),
    "residual": (
        lambda a, b: ((a, b), {"residual": a}),
        r"residual must be .*4, 3\], got \[4, 6\]",
    ),
    "out": (lambda a, b: ((a, b, a), {}), r"out must be \[\.\.\., 4, 3\], got \[4, 6\]"),
    "activation": (lambda a, b: ((a, b), {"activation": "tanh"}), "'silu', got 'tanh'"),
    "out and a gradient": (
        lambda a, b: ((a.requires_grad_(), b, a @ b), {}),
        "requires a gradient",
    ),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_the_value(kernel, device, given, message):
    args, options = given(*(torch.randn(size, device=device) for size in ((4, 6), (6, 3))))
    with pytest.raises(ValueError, match=message):
        kernel.matmul(*args, **options)


def test_refusals_of_fp8(kernel, device):
    a, b = torch.randn(4, 16, device=device), torch.randn(16, 8, device=device)
    one = torch.ones((), device=device)
    with pytest.raises(
        ValueError, match=r"a must be float8_e4m3fn or float8_e5m2, got torch\.float32"
    ):
        kernel.scaled_matmul(a, b, one, one)
    a, b = a.to(FP8[0]), b.to(FP8[0])
    with pytest.raises(ValueError, match=r"bfloat16 or float16, got torch\.float32"):
        kernel.scaled_matmul(a, b, one, one, out_dtype=torch.float32)
    with pytest.raises(ValueError, match=r"scale_a must have 1 number or be \[4\].*, got \[3\]"):
        kernel.scaled_matmul(a, b, one.expand(3).contiguous(), one)
    with pytest.raises(ValueError, match="scale_b must be Float, got Double"):
        kernel.scaled_matmul(a, b, one, one.double())
    with pytest.raises(ValueError, match="fp8 have two scales"):
        kernel.matmul(a, b)


@gpu
@pytest.mark.gpu
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.matmul(torch.randn(4, 6, device=other), torch.randn(6, 3, device=other))

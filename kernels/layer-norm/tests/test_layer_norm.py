# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, near enough to say how near."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.testing import assert_bitwise, load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16", "float64")
KINDS = ("layer", "rms")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
per_kind = pytest.mark.parametrize("kind", KINDS)
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")


def _tests(op, call, right, *, count, shapes, second=True):
    """Of an operator on x, or on x and a residual, and `count` tensors [width]."""

    def inputs(draw, shape):
        rows = 2 if op.startswith("add") else 1
        return (*(draw(shape) for _ in range(rows)), *(draw(shape[-1:]) for _ in range(count)))

    return op_tests(
        op=op,
        call=call,
        reference=right,
        inputs=inputs,
        shapes=shapes,
        dtypes=DTYPES,
        backward=True,
        second_backward=second,
        factor=16.0,  # gradients are sums that cancel, of a few rows
        leave_out={"special_values": "what a row's sums are with infinities is tested below"},
    )


EPS = 1e-2  # rows of one number have a variance of 0, and gradients that nearly cancel


def _width(x):
    return x.shape[-1:]


FEW = {name: cases.SHAPES[name] for name in ("odd: no vectors", "a warp a row")}
TestLayerNorm = _tests(
    "layer_norm",
    lambda op, x, w, b: op(x, _width(x), w, b, EPS),
    lambda x, w, b: reference.layer_norm(x, w, b, EPS),
    count=2,
    shapes=cases.SHAPES,
)
TestRmsNorm = _tests(
    "rms_norm",
    lambda op, x, w: op(x, _width(x), w, EPS),
    lambda x, w: reference.rms_norm(x, w, EPS),
    count=1,
    shapes=FEW,
)


@pytest.fixture(autouse=True)
def _seeded():
    torch.manual_seed(11)


def off(got, exact):
    """The distance of the whole, in shares of the exact result."""
    return ((got.double() - exact).norm() / exact.norm().clamp(min=1e-30)).item()


# The rounding of the result alone is 1.7e-3 of it in bfloat16 and 2.1e-4 in float16.
NEAR = {torch.float32: 1e-6, torch.float16: 4e-4, torch.bfloat16: 3e-3, torch.float64: 1e-14}


def drawn(rows, width, dtype, device, *, weights=None):
    """x, residual, weight and bias; the mean of a row is as large as its deviation."""
    source = torch.Generator().manual_seed(7)
    x, residual = (
        (torch.randn(rows, width, generator=source) * 2 + 2).to(device, dtype) for _ in range(2)
    )
    weight, bias = (
        torch.randn(width, generator=source).to(device, weights or dtype) for _ in range(2)
    )
    return x, residual, weight, bias


def call(kernel, kind, x, residual, weight, bias, eps=1e-5):  # noqa: PLR0917
    """The result, and the sum or None."""
    width = x.shape[-1:]
    if kind == "rms":
        if residual is None:
            return kernel.rms_norm(x, width, weight, eps), None
        return kernel.add_rms_norm(x, residual, width, weight, eps)
    if residual is None:
        return kernel.layer_norm(x, width, weight, bias, eps), None
    return kernel.add_layer_norm(x, residual, width, weight, bias, eps)


def right(kind, x, residual, weight, bias, eps=1e-5):  # noqa: PLR0917
    """The same in float64 of what is given, the sum rounded to the dtype of x."""
    total = x if residual is None else x + residual
    wide = [None if t is None else t.double() for t in (total, weight, bias)]
    if kind == "rms":
        return reference.rms_norm(*wide[:2], eps), total
    return reference.layer_norm(*wide, eps), total


def check(kernel, kind, given, *, near, grads):
    """Results and gradients of x, residual, weight and bias, beside float64."""
    leaves = [None if t is None else t.clone().requires_grad_() for t in given]
    y, total = call(kernel, kind, *leaves)
    if kind == "rms":
        leaves[3] = None
    want, want_total = right(kind, *given)
    assert y.is_contiguous()
    assert off(y, want) <= near
    dy = torch.randn(y.shape, device=y.device).to(y.dtype)
    exact = want_total.double().requires_grad_()
    weights = [None if t is None else t.double().requires_grad_() for t in given[2:]]
    if kind == "rms":
        again, weights[1] = reference.rms_norm(exact, weights[0], 1e-5), None
    else:
        again = reference.layer_norm(exact, *weights)
    outputs, slopes, wide_outputs, wide_slopes = [y], [dy], [again], [dy.double()]
    if total is not None:
        assert_bitwise(total.detach(), want_total)
        dsum = torch.randn(y.shape, device=y.device).to(y.dtype)
        outputs, slopes = [*outputs, total], [*slopes, dsum]
        wide_outputs, wide_slopes = [*wide_outputs, exact], [*wide_slopes, dsum.double()]
    got = torch.autograd.grad(outputs, [t for t in leaves if t is not None], slopes)
    wanted = [
        exact,
        *([exact] if total is not None else []),
        *(t for t in weights if t is not None),
    ]
    unique = [exact, *(t for t in weights if t is not None)]
    by = dict(
        zip(map(id, unique), torch.autograd.grad(wide_outputs, unique, wide_slopes), strict=True)
    )
    for one, leaf in zip(got, wanted, strict=True):
        assert off(one, by[id(leaf)]) <= grads


GRADS = {torch.float32: 3e-6, torch.float16: 6e-4, torch.bfloat16: 5e-3, torch.float64: 1e-13}


@per_kind
@per_dtype
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("weights", ["none", "own", "float32"])
@pytest.mark.parametrize("width", [33, 64])
def test_results_and_gradients(kernel, device, dtype, kind, residual, weights, width):  # noqa: PLR0917
    if weights == "float32" and dtype is torch.float64:
        pytest.skip("float64 has weights of its own dtype")
    own = torch.float32 if weights == "float32" else dtype
    given = list(drawn(19, width, dtype, device, weights=own))
    if not residual:
        given[1] = None
    if weights == "none":
        given[2:] = None, None
    check(kernel, kind, given, near=NEAR[dtype], grads=GRADS[dtype])


@gpu
@pytest.mark.gpu
@per_kind
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [*cases.WIDTHS, *cases.WIDE, *cases.ODD])
def test_every_way_to_cut_rows(kernel, device, dtype, kind, residual, width):  # noqa: PLR0917
    if device != "cuda":
        pytest.skip("what is cut are blocks of a GPU")
    given = list(drawn(301 if width < 10_000 else 70, width, dtype, device))
    if not residual:
        given[1] = None
    check(kernel, kind, given, near=NEAR[dtype], grads=GRADS[dtype])


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("residual", [False, True], ids=["alone", "residual"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("rows", "width"), [(70_001, 64), (70_001, 128), (8193, 4096), (1001, 8192)], ids=str
)
def test_blocks_that_have_many_rows(kernel, device, dtype, rows, width, residual):  # noqa: PLR0917
    if device != "cuda":
        pytest.skip("what has many rows are blocks of a GPU")
    given = list(drawn(rows, width, dtype, device))
    if not residual:
        given[1] = None
    check(kernel, "layer", given, near=NEAR[dtype], grads=GRADS[dtype])


@pytest.mark.parametrize("width", [4096, 4095])
def test_a_mean_far_from_zero_costs_what_its_rounding_does(kernel, device, width):
    """A difference of the mean of squares and the square of the mean would be off by 3e-2."""
    x = (torch.randn(5, width, dtype=torch.float64) + 1000).float().to(device)
    y, _ = call(kernel, "layer", x, None, None, None)
    assert off(y, right("layer", x, None, None, None)[0]) <= 2e-4


@per_kind
@pytest.mark.parametrize("mean", [0, 3, 5, 200])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("width", [2048, 4096, 5000])
def test_the_mean_of_half_types_may_be_far_from_zero(kernel, device, kind, width, dtype, mean):  # noqa: PLR0917
    """On a GPU a variance is a difference of sums until more than 4 bits of it would cancel."""
    x = (torch.randn(7, width, dtype=torch.float64) + mean).to(device, dtype)
    y, _ = call(kernel, kind, x, None, None, None)
    assert off(y, right(kind, x, None, None, None)[0]) <= NEAR[dtype]


@per_kind
@pytest.mark.parametrize("width", [5, 64, 2048])
@per_dtype
def test_infinities_and_nan_are_a_rows_own(kernel, device, kind, width, dtype):
    x = torch.randn(5, width, device=device).to(dtype)
    x[1, 2], x[3, 0] = float("inf"), float("nan")
    y, _ = call(kernel, kind, x, None, None, None)
    want, _ = right(kind, x, None, None, None)
    torch.testing.assert_close(y.double(), want, rtol=1e-2, atol=1e-2, equal_nan=True)


@pytest.mark.parametrize(
    "size", [(64,), (2, 3, 64), (1, 1, 64), (0, 3, 64), (4, 0, 64), (2, 5, 7, 64)], ids=str
)
def test_leading_dimensions(kernel, device, size):
    weight, bias = torch.randn(2, 64, device=device)
    x = torch.randn(size, device=device, requires_grad=True)
    got = kernel.layer_norm(x, 64, weight, bias)
    want = torch.nn.functional.layer_norm(x, (64,), weight, bias)
    assert got.shape == want.shape
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    slope = torch.randn_like(want)
    torch.testing.assert_close(
        *(torch.autograd.grad(y, x, slope)[0] for y in (got, want)), rtol=1e-4, atol=1e-5
    )


def test_several_dimensions_are_normalized_as_one(kernel, device):
    x = torch.randn(3, 5, 4, 6, device=device)
    weight, bias = (torch.randn(4, 6, device=device, requires_grad=True) for _ in range(2))
    got = kernel.layer_norm(x, (4, 6), weight, bias)
    want = torch.nn.functional.layer_norm(x, (4, 6), weight, bias)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    slope = torch.randn_like(want)
    for one, other in zip(
        *(torch.autograd.grad(y, (weight, bias), slope) for y in (got, want)), strict=True
    ):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    y, total = kernel.add_rms_norm(x, x, (4, 6), weight, 1e-6)
    torch.testing.assert_close(y, torch.nn.functional.rms_norm(2 * x, (4, 6), weight, 1e-6))
    assert_bitwise(total, 2 * x)


def test_rms_norm_without_eps_has_that_of_the_dtype(kernel, device):
    x = torch.randn(3, 32, device=device) * 1e-4
    want = torch.nn.functional.rms_norm(x, (32,))
    torch.testing.assert_close(kernel.rms_norm(x, 32), want, rtol=1e-5, atol=1e-6)


LAYOUTS = {
    "rows with a gap": lambda t: t[:40, :64],
    "rows with a gap, not on 16 bytes": lambda t: t[:40, 1:65],
    "every second row": lambda t: t[::2, :64],
    "one row for all": lambda t: t[:1, :64].expand(40, -1),
    "transposed": lambda t: t[:64, :40].t(),
    "every second column": lambda t: t[:40, :128:2],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_strides(kernel, device, dtype, layout):
    x, residual = (LAYOUTS[layout](torch.randn(80, 136, device=device).to(dtype)) for _ in range(2))
    weight = torch.randn(128, device=device).to(dtype)[::2]
    for more in (None, residual, residual.contiguous()):
        y, total = call(kernel, "layer", x, more, weight, weight)
        want, sums = right("layer", x, more, weight, weight)
        assert off(y, want) <= NEAR[dtype]
        if total is not None:
            assert_bitwise(total, sums)


def test_a_gradient_that_is_expanded_or_strided(kernel, device):
    x = torch.randn(6, 64, device=device, requires_grad=True)
    for slope in (
        torch.ones(1, 1, device=device).expand(6, 64),
        torch.randn(64, 6, device=device).t(),
    ):
        got, want = (
            torch.autograd.grad(function(x, (64,)), x, slope)[0]
            for function in (kernel.rms_norm, torch.nn.functional.rms_norm)
        )
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_only_one_of_two_results_is_used(kernel, device):
    x, residual = (torch.randn(6, 64, device=device, requires_grad=True) for _ in range(2))
    y, total = kernel.add_layer_norm(x, residual, 64)
    (alone,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    assert alone.abs().max() < 1e-4  # a sum that the mean makes constant
    dx, dresidual = torch.autograd.grad(total.sum(), (x, residual))
    assert bool((dx == 1).all())
    assert bool((dresidual == 1).all())


@per_kind
def test_second_gradients_of_a_sum(kernel, kind, device):
    given = [t.double() for t in drawn(4, 9, torch.float64, device)]
    leaves = [t.requires_grad_() for t in given[: 3 if kind == "rms" else 4]]

    def function(x, residual, weight, bias=None):
        return call(kernel, kind, x, residual, weight, bias)

    assert torch.autograd.gradcheck(function, leaves)
    assert torch.autograd.gradgradcheck(function, leaves)


def test_with_and_without_a_gradient_the_bits_are_the_same(kernel, device):
    for dtype in (torch.float32, torch.bfloat16):
        for width in (33, 64, 4096):
            x, residual, weight, bias = drawn(40, width, dtype, device)
            for more in (None, residual):
                plain, _ = call(kernel, "layer", x, more, weight, bias)
                kept, _ = call(kernel, "layer", x.clone().requires_grad_(), more, weight, bias)
                assert_bitwise(kept.detach(), plain)


def test_a_residual_gives_the_bits_of_two_calls(kernel, device):
    x, residual, weight, bias = drawn(40, 200, torch.bfloat16, device)
    y, total = kernel.add_layer_norm(x, residual, 200, weight, bias)
    assert_bitwise(y, kernel.layer_norm(total, 200, weight, bias))


def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device):
    x, _, weight, bias = drawn(3, 64, torch.float32, device)
    weight.requires_grad_()
    with torch.no_grad():
        assert not kernel.layer_norm(x, 64, weight, bias).requires_grad
    y = kernel.layer_norm(x, 64, weight, bias)
    (slope,) = torch.autograd.grad(y.sum(), weight)
    assert slope.shape == weight.shape


# Dynamo itself calls what torch deprecates.
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("add", [False, True], ids=["alone", "residual"])
def test_a_compiler_traces_it_whole(kernel, device, add):
    x, residual, weight, bias = (t.requires_grad_() for t in drawn(6, 64, torch.float32, device))

    def block(x, residual):
        if not add:
            return kernel.layer_norm(2 * x, 64, weight, bias) + 1
        y, total = kernel.add_layer_norm(2 * x, residual, 64, weight, bias)
        return y + total.sin()

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    results = [
        torch.autograd.grad(function(x, residual).square().sum(), [x, weight, bias])
        for function in (block, compiled)
    ]
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


def test_the_layers_take_the_place_of_torchs(kernel, device):
    x = torch.randn(5, 4, 8, device=device)
    for shape in ((8,), (4, 8)):
        layer = torch.nn.LayerNorm(shape, device=device)
        torch.nn.init.normal_(layer.weight)
        got = kernel.layers.LayerNorm.forward(layer, x)
        torch.testing.assert_close(got, layer(x), rtol=1e-5, atol=1e-5)
        for affine in (True, False):
            rms = torch.nn.RMSNorm(shape, device=device, elementwise_affine=affine)
            got = kernel.layers.RMSNorm.forward(rms, x)
            torch.testing.assert_close(got, rms(x), rtol=1e-5, atol=1e-5)
    assert kernel.layers.LlamaRMSNorm is kernel.layers.LigerRMSNorm is kernel.layers.RMSNorm


class LlamaRMSNorm(torch.nn.Module):
    """As in transformers."""

    def __init__(self, width):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.rand(width))
        self.variance_epsilon = 1e-6

    def forward(self, hidden_states):
        wide = hidden_states.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * wide.to(hidden_states.dtype)


@pytest.mark.parametrize("layer_name", ["RMSNorm", "LlamaRMSNorm", "LigerRMSNorm"])
def test_kernelize_puts_the_layer_into_a_model(kernel, device, layer_name):
    named = kernforge.use_kernel_forward_from_hub("RMSNorm")(LlamaRMSNorm)
    model = torch.nn.Sequential(named(64), torch.nn.Linear(64, 8)).to(device)
    x = torch.randn(5, 64, device=device)
    want = model(x)
    builds = Path(kernel.__file__).parents[1]
    repository = kernforge.LocalLayerRepository(builds, layer_name=layer_name)
    with kernforge.use_kernel_mapping({"RMSNorm": {device: repository}}):
        replaced = kernforge.kernelize(model, mode=kernforge.Mode.TRAINING, device=device)
    got = replaced(x)
    assert replaced[0].forward.__func__ is not LlamaRMSNorm.forward
    torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
    got.sum().backward()
    assert all(one.grad is not None for one in replaced.parameters())


REFUSED = {
    "dtype": (lambda x, w: (x.int(), 6, w), "float32, .* got Int"),
    "dtype of weight": (lambda x, w: (x, 6, w.half()), "weight must be Float like x, got Half"),
    "weight of a double": (lambda x, w: (x.double(), 6, w), "weight must be Double like x, got F"),
    "dtypes of weights": (
        lambda x, w: (x.half(), 6, w, w.half()),
        "bias must be Float like weight, got Half",
    ),
    "shape": (lambda x, w: (x, 5, w), r"dimensions of x must be \[5\], got \[4, 6\]"),
    "shapes": (lambda x, w: (x, (4, 6), w), r"weight must be \[4, 6\], got \[6\]"),
    "no shape": (lambda x, w: (x, (), w), r"dimensions of x must be \[\], got \[4, 6\]"),
    "weight": (lambda x, w: (x, 6, w[1:]), r"weight must be \[6\], got \[5\]"),
    "bias": (lambda x, w: (x, 6, w, w[1:]), r"bias must be \[6\], got \[5\]"),
    "bias of two": (lambda x, w: (x, 6, w, x), r"bias must be \[6\], got \[4, 6\]"),
}


@pytest.mark.parametrize(("given", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_the_value(kernel, device, given, message):
    x, weight = torch.randn(4, 6, device=device), torch.randn(6, device=device)
    with pytest.raises(ValueError, match=message):
        kernel.layer_norm(*given(x, weight))


def test_another_residual_is_refused(kernel, device):
    x = torch.randn(4, 6, device=device)
    with pytest.raises(ValueError, match=r"residual must have the shape of x \[4, 6\], got \[6\]"):
        kernel.add_rms_norm(x, x[0], 6)
    with pytest.raises(ValueError, match="residual must be Float like x, got Half"):
        kernel.add_rms_norm(x, x.half(), 6)


@gpu
@pytest.mark.gpu
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.rms_norm(torch.randn(4, 6, device=other), 6)


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
def test_in_a_cuda_graph_gradients_are_the_same_bits(kernel, device):
    if device != "cuda":
        pytest.skip("a CUDA graph holds no work of a CPU")
    x, residual, weight, bias = (
        t.requires_grad_() for t in drawn(300, 4096, torch.bfloat16, device)
    )

    def run():
        y, total = kernel.add_layer_norm(x, residual, 4096, weight, bias)
        return y, *torch.autograd.grad((y, total), (x, weight, bias), (y.detach(), x.detach()))

    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        want = [t.clone() for t in run()]
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        got = run()
    for _ in range(2):
        graph.replay()
        torch.cuda.synchronize()
        for one, other in zip(got, want, strict=True):
            assert_bitwise(one.detach(), other.detach())

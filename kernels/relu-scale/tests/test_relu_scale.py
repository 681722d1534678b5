# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, rounded once, whatever the length, place and strides."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[1]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]
# One rounding of the result: half a unit in the last place, and float32's own before it.
RTOL = {torch.float32: 1.2e-7, torch.float16: 5e-4, torch.bfloat16: 4e-3, torch.float64: 0.0}
ALPHA = 1.75  # exact in every dtype
SENTINEL = -77.0


def _load(name):
    """A file of the project under a name of its own: every kernel has a reference.py."""
    spec = importlib.util.spec_from_file_location(f"relu_scale_{name}", PROJECT / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("cases")
reference = _load("reference")
per_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random(*shape, dtype=torch.float32, device="cpu"):
    return torch.randn(*shape, device=device).to(dtype)


def assert_close(got, want, like):
    assert (got.dtype, got.shape, got.device) == (like.dtype, like.shape, like.device)
    torch.testing.assert_close(got.double(), want, rtol=RTOL[like.dtype], atol=6e-8, equal_nan=True)


@per_dtype
@pytest.mark.parametrize("length", cases.LENGTHS.values(), ids=cases.LENGTHS)
def test_lengths(kernel, device, dtype, length):
    x = random(length, dtype=dtype, device=device)
    assert_close(kernel.relu_scale(x, ALPHA), reference.relu_scale(x, ALPHA), x)


@per_dtype
@pytest.mark.parametrize("alpha", [1.7, -0.3, 0.0, 1e-4])
def test_the_bits_are_torchs(kernel, device, dtype, alpha):
    x = random(4099, dtype=dtype, device=device)
    assert torch.equal(kernel.relu_scale(x, alpha), torch.relu(x) * alpha)


@per_dtype
def test_special_values(kernel, device, dtype):
    inf, nan = float("inf"), float("nan")
    x = torch.tensor([0.0, -0.0, inf, -inf, nan, 65504.0, -1.0, 6e-8], dtype=dtype, device=device)
    got = kernel.relu_scale(x, 2.0)
    assert torch.equal(got.nan_to_num(9.0), (torch.relu(x) * 2.0).nan_to_num(9.0))
    assert bool(got[4].isnan())
    leaf = x.clone().requires_grad_()
    kernel.relu_scale(leaf, 2.0).sum().backward()
    twin = x.clone().requires_grad_()
    (torch.relu(twin) * 2.0).sum().backward()
    assert torch.equal(leaf.grad, twin.grad)


@pytest.mark.parametrize("view", [*cases.VIEWS, *cases.EXPANDED])
def test_strides(kernel, device, view):
    x = {**cases.VIEWS, **cases.EXPANDED}[view](random(12, 18, 20, device=device))
    got = kernel.relu_scale(x, ALPHA)
    assert_close(got, reference.relu_scale(x, ALPHA), x)
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


@per_dtype
@pytest.mark.parametrize("length", [1, 5, 1027, 70_001])
def test_every_misalignment(kernel, device, dtype, length):
    for start in range(9):
        buffer = torch.full((length + 32,), SENTINEL, dtype=dtype, device=device)
        x = buffer[start : start + length]
        x.copy_(random(length, dtype=dtype, device=device))
        want = torch.relu(x) * ALPHA
        assert torch.equal(kernel.relu_scale(x, ALPHA), want)
        kernel.relu_scale_(x, ALPHA)
        assert torch.equal(x, want)
        x.fill_(SENTINEL)
        assert bool((buffer == SENTINEL).all())


def test_gradients_of_every_order(kernel, device):
    x = random(5, 7, dtype=torch.float64, device=device).requires_grad_()
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, ::2]):
        assert torch.autograd.gradcheck(lambda t, v=view: kernel.relu_scale(v(t), -1.5), x)
        assert torch.autograd.gradgradcheck(lambda t, v=view: kernel.relu_scale(v(t), -1.5), x)


@per_dtype
@pytest.mark.parametrize("length", [1, 1027, (1 << 21) + 1029])
def test_gradient(kernel, device, dtype, length):
    x = random(length, dtype=dtype, device=device).requires_grad_()
    grad = random(length, dtype=dtype, device=device)
    kernel.relu_scale(x, ALPHA).backward(grad)
    want = reference.relu_scale_backward(grad, x.detach(), ALPHA)
    assert_close(x.grad, want, grad)


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
    with pytest.raises(ValueError, match=f"x is on {other}.*this build runs on {device}"):
        kernel.relu_scale(random(4, device=other))


def test_opcheck(kernel, device):
    ops = kernel._ops.ops
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, ::2]):
        x = view(random(5, 8, device=device))
        torch.library.opcheck(ops.relu_scale.default, (x, ALPHA))
        torch.library.opcheck(ops.relu_scale_.default, (x, ALPHA))
        torch.library.opcheck(ops.relu_scale_backward.default, (x + 1, x, ALPHA))


# torch's own compiler does what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
def test_compiles_whole_with_its_gradient(kernel, device):
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(x):
        return kernel.relu_scale(x + 1, ALPHA) * 2

    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            x = random(37, 53, device=device).requires_grad_()
            out = step(x)
            out.sum().backward()
            assert torch.equal(out, torch.relu(x + 1) * ALPHA * 2)
            assert torch.equal(x.grad, (x + 1 > 0) * ALPHA * 2)


@pytest.mark.gpu
def test_cuda_graph_replays_on_new_values(kernel, device):
    if device != "cuda":
        pytest.skip("graphs are the GPU's")
    x = random(1001, device=device)
    kernel.relu_scale(x, ALPHA)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.relu_scale(x, ALPHA)
    x.copy_(random(1001, device=device))
    graph.replay()
    assert torch.equal(out, torch.relu(x) * ALPHA)


@pytest.mark.gpu
def test_runs_on_the_current_stream(kernel, device):
    if device != "cuda":
        pytest.skip("streams are the GPU's")
    x = random(1 << 20, device=device)
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.fill_(2.0)
        out = kernel.relu_scale(x, ALPHA)
    assert not stream.query(), "the launch waited, so it was on another stream"
    stream.synchronize()
    assert bool((out == 2 * ALPHA).all())


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(kernel, device):
    if device != "cuda":
        pytest.skip("the CPU's index is the same at any length")
    n = 2**31 + 1029
    if torch.cuda.mem_get_info()[0] < 5 * n:
        pytest.skip(f"needs {5 * n >> 20} MiB")
    x = torch.full((n,), -1.0, dtype=torch.bfloat16, device=device)
    x[-1030:] = 2.0
    out = kernel.relu_scale(x, ALPHA)
    assert bool((out[-1030:] == 2 * ALPHA).all())
    assert bool((out[:-1030] == 0).all())

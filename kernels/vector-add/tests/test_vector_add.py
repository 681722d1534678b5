# SPDX-License-Identifier: Apache-2.0
"""Every backend gives torch's bits for one shape, and a sentence for two."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

PROJECT = Path(__file__).parents[1]
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def _load(name):
    """A file of the project under a name of its own: every kernel has a reference.py."""
    spec = importlib.util.spec_from_file_location(f"vector_add_{name}", PROJECT / f"{name}.py")
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cases = _load("cases")
reference = _load("reference")
per_dtype = pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: str(d)[6:])
ways = pytest.mark.parametrize("way", ["vector_add", "vector_add_python"])


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random(*shape, dtype=torch.float32, device="cpu"):
    return torch.randn(*shape, device=device).to(dtype)


def assert_sum(got, a, b):
    want = reference.vector_add(a, b).to(a.dtype)
    assert (got.dtype, got.shape, got.device) == (a.dtype, a.shape, a.device)
    assert torch.equal(got, a + b)
    # The float64 sum rounded once; float32's own rounding before it may move a tie.
    torch.testing.assert_close(got, want)


@ways
@per_dtype
@pytest.mark.parametrize("length", cases.LENGTHS.values(), ids=cases.LENGTHS)
def test_lengths(kernel, device, way, dtype, length):
    a, b = (random(length, dtype=dtype, device=device) for _ in range(2))
    assert_sum(getattr(kernel, way)(a, b), a, b)


def _reversed(t):
    return t.permute(list(reversed(range(t.dim()))))


LAYOUTS = {
    "alike": lambda t: t.clone(),
    "contiguous": lambda t: t.clone(memory_format=torch.contiguous_format),
    "dimensions reversed": lambda t: _reversed(_reversed(t).contiguous()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("view", [*cases.VIEWS, *cases.EXPANDED])
def test_strides(kernel, device, view, layout):
    a = {**cases.VIEWS, **cases.EXPANDED}[view](random(12, 18, 20, device=device))
    b = LAYOUTS[layout](a) + 1
    for left, right in ((a, b), (b, a), (a, a)):
        got = kernel.vector_add(left, right)
        assert_sum(got, left, right)
        assert got.stride() == torch.empty_like(left).stride()


@per_dtype
@pytest.mark.parametrize("length", [1, 5, 1027, 70_001])
def test_every_misalignment(kernel, device, dtype, length):
    for start in range(9):
        parents = [random(length + 32, dtype=dtype, device=device) for _ in range(2)]
        a, b = parents[0][start : start + length], parents[1][8 - start : 8 - start + length]
        assert torch.equal(kernel.vector_add(a, b), a + b)


@per_dtype
def test_special_values(kernel, device, dtype):
    inf, nan = float("inf"), float("nan")
    a = torch.tensor([inf, inf, -inf, nan, 65504.0, 0.0, -0.0], dtype=dtype, device=device)
    b = torch.tensor([1.0, -inf, 5.0, 1.0, 65504.0, -0.0, -0.0], dtype=dtype, device=device)
    torch.testing.assert_close(kernel.vector_add(a, b), a + b, rtol=0, atol=0, equal_nan=True)


@ways
def test_gradients_of_every_order(kernel, device, way):
    call = getattr(kernel, way)
    a, b = (random(5, 7, dtype=torch.float64, device=device).requires_grad_() for _ in range(2))
    assert torch.autograd.gradcheck(call, (a, b))
    assert torch.autograd.gradcheck(call, (a, b.detach()))
    assert torch.autograd.gradgradcheck(lambda a, b: call(a * a, b), (a, b))


def test_both_gradients_are_the_same_and_each_is_where_it_should_be(kernel, device):
    a, b = (random(100, device=device).requires_grad_() for _ in range(2))
    grad = random(100, device=device)
    in_cpp, in_python = kernel.vector_add(a, b), kernel.vector_add_python(a, b)
    assert in_cpp.grad_fn.name() != in_python.grad_fn.name()
    for out in (in_cpp, in_python):
        got = torch.autograd.grad(out, (a, b), grad)
        assert torch.equal(got[0], grad)
        assert torch.equal(got[1], grad)


@ways
def test_no_gradient_is_recorded_where_none_is_wanted(kernel, device, way):
    a = random(4, device=device).requires_grad_()
    with torch.no_grad():
        assert not getattr(kernel, way)(a, a).requires_grad
    assert not getattr(kernel, way)(a.detach(), a.detach()).requires_grad


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda x: x[:1], r"shape of a \[4, 6\], got \[1, 6\]; shapes are not broadcast"),
        (lambda x: x[0], r"shape of a \[4, 6\], got \[6\]; shapes are not broadcast"),
        (lambda x: x.half(), "b must be Float like a, got Half"),
    ],
)
@ways
def test_refusals_say_the_value(kernel, device, way, other, message):
    x = random(4, 6, device=device)
    with pytest.raises(ValueError, match=message):
        getattr(kernel, way)(x, other(x))


def test_a_dtype_that_is_not_taken_is_named(kernel, device):
    x = torch.ones(3, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match=r"must be float32, .* got Int"):
        kernel.vector_add(x, x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    x = random(4, device=other)
    with pytest.raises(ValueError, match=f"a is on {other}.*this build runs on {device}"):
        kernel.vector_add(x, x)
    with pytest.raises(ValueError, match="b must be on"):
        kernel.vector_add(random(4, device=device), x)


def test_opcheck(kernel, device):
    ops = kernel._ops.ops
    for view in (lambda t: t, lambda t: t.t(), lambda t: t[:, ::2]):
        a = view(random(5, 8, device=device))
        torch.library.opcheck(ops.vector_add_forward.default, (a, a + 1))
        torch.library.opcheck(ops.vector_add.default, (a, a + 1))
        torch.library.opcheck(ops.vector_add.default, (a.clone().requires_grad_(), a + 1))


# torch's own compiler does what torch itself deprecates.
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@ways
def test_compiles_whole_with_its_gradient(kernel, device, way):
    torch._dynamo.reset()
    call = getattr(kernel, way)

    @torch.compile(fullgraph=True, backend="aot_eager")
    def step(a, b):
        return call(a * a, b) * 2

    with torch._dynamo.config.patch(error_on_recompile=True):
        for _ in range(3):
            a, b = (random(37, 53, device=device).requires_grad_() for _ in range(2))
            out = step(a, b)
            out.sum().backward()
            assert torch.equal(out, (a * a + b) * 2)
            assert torch.equal(a.grad, 4 * a)
            assert bool((b.grad == 2).all())


@pytest.mark.gpu
def test_cuda_graph_replays_on_new_values(kernel, device):
    if device != "cuda":
        pytest.skip("graphs are the GPU's")
    a, b = (random(1001, device=device) for _ in range(2))
    kernel.vector_add(a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = kernel.vector_add(a, b)
    a.copy_(random(1001, device=device))
    graph.replay()
    assert torch.equal(out, a + b)


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
        out = kernel.vector_add(x, x)
    assert not stream.query(), "the launch waited, so it was on another stream"
    stream.synchronize()
    assert bool((out == 4.0).all())


@pytest.mark.gpu
def test_more_than_2_to_the_31_elements(kernel, device):
    if device != "cuda":
        pytest.skip("the CPU's index is the same at any length")
    n = 2**31 + 1029
    if torch.cuda.mem_get_info()[0] < 7 * n:
        pytest.skip(f"needs {7 * n >> 20} MiB")
    a = torch.ones(n, dtype=torch.bfloat16, device=device)
    a[-1030:] = 2.0
    out = kernel.vector_add(a, a)
    assert bool((out[-1030:] == 4).all())
    assert bool((out[:-1030] == 2).all())

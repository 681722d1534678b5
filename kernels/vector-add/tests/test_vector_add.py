# SPDX-License-Identifier: Apache-2.0
"""Every backend gives torch's bits for one shape, and a sentence for two."""

from __future__ import annotations

import pytest
import torch

from kernforge.testing import load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16", "float64")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", DTYPES)
ways = pytest.mark.parametrize("way", ["vector_add", "vector_add_python"])


def checks(way, **more):
    return op_tests(
        op=way,
        reference=lambda a, b: a + b,
        inputs=lambda draw, shape: (draw(shape), draw(shape)),
        shapes=cases.SHAPES,
        backward=True,
        second_backward=True,
        elementwise=True,
        **more,
    )


TestInCpp = checks("vector_add", dtypes=DTYPES, large=(2**31 + 1029,))
# Memory and layouts are the same op's.
TestInPython = checks("vector_add_python", dtypes=("float32", "float64"), views=("transposed",))


@pytest.fixture(autouse=True)
def seed():
    torch.manual_seed(1234)


def random(*shape, dtype="float32", device="cpu"):
    return torch.randn(*shape, device=device).to(getattr(torch, dtype))


def assert_sum(got, a, b):
    want = reference.vector_add(a, b).to(a.dtype)
    assert (got.dtype, got.shape, got.device) == (a.dtype, a.shape, a.device)
    assert torch.equal(got, a + b)
    # The float64 sum rounded once; float32's own rounding before it may move a tie.
    torch.testing.assert_close(got, want)


def _reversed(t):
    return t.permute(list(reversed(range(t.dim()))))


LAYOUTS = {
    "alike": lambda t: t.clone(),
    "contiguous": lambda t: t.clone(memory_format=torch.contiguous_format),
    "dimensions reversed": lambda t: _reversed(_reversed(t).contiguous()),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("view", [*cases.VIEWS, *cases.EXPANDED])
def test_strides_are_those_that_torch_would_choose(kernel, device, view, layout):
    a = {**cases.VIEWS, **cases.EXPANDED}[view](random(12, 18, 20, device=device))
    b = LAYOUTS[layout](a) + 1
    for left, right in ((a, b), (b, a), (a, a)):
        got = kernel.vector_add(left, right)
        assert_sum(got, left, right)
        assert got.stride() == torch.empty_like(left).stride()


@per_dtype
@pytest.mark.parametrize("length", cases.LARGE.values(), ids=cases.LARGE)
def test_large_at_every_pair_of_misalignments(kernel, device, dtype, length):
    parents = [random(length + 32, dtype=dtype, device=device) for _ in range(2)]
    for start in (0, 1, 4, 8):
        a, b = parents[0][start : start + length], parents[1][8 - start : 8 - start + length]
        assert torch.equal(kernel.vector_add(a, b), a + b)


@pytest.mark.parametrize("length", [1000, 1 << 20, (1 << 22) + 3])
def test_each_call_of_a_chain_sees_the_one_before_it(kernel, device, length):
    """On a GPU the next kernel is set up while this one runs (pdl.cuh)."""
    one = torch.ones(length, device=device)

    def chain():
        total = torch.zeros_like(one)
        for _ in range(40):
            total = kernel.vector_add(kernel.vector_add(total, one), one)
        return total

    want = torch.full_like(one, 80)
    assert torch.equal(chain(), want)
    if device == "cuda":
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total = chain()
        for _ in range(5):
            total.zero_()
            graph.replay()
            assert torch.equal(total, want)


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
        (lambda x: x.int(), "b must be float32, .* got Int"),
    ],
)
@ways
def test_refusals_say_the_value(kernel, device, way, other, message):
    x = random(4, 6, device=device)
    with pytest.raises(ValueError, match=message):
        getattr(kernel, way)(x, other(x))


@ways
def test_two_dtypes_are_promoted_as_torch_does(kernel, device, way):
    a, b = random(4, 6, dtype="bfloat16", device=device), random(4, 6, device=device)
    for left, right in ((a, b), (b, a), (a, a.half()), (b, b.double())):
        leaves = [left.clone().requires_grad_(), right.clone().requires_grad_()]
        got, want = getattr(kernel, way)(*leaves), left + right
        assert got.dtype == want.dtype
        assert torch.equal(got, want)
        grads = torch.autograd.grad(got.sum(), leaves)
        assert [g.dtype for g in grads] == [left.dtype, right.dtype]


def test_a_dtype_that_is_not_taken_is_named(kernel, device):
    x = torch.ones(3, dtype=torch.int32, device=device)
    with pytest.raises(ValueError, match=r"must be float32, .* got Int"):
        kernel.vector_add(x, x)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    x = random(4, device=other)
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.vector_add(x, x)
    with pytest.raises((ValueError, NotImplementedError)):
        kernel.vector_add(random(4, device=device), x)

# SPDX-License-Identifier: Apache-2.0
"""Every backend gives the reference, near enough to say how near."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import kernforge
from kernforge.testing import assert_bitwise, load_beside, op_tests

DTYPES = ("float32", "float16", "bfloat16")


cases = load_beside(__file__, "cases")
reference = load_beside(__file__, "reference")
per_dtype = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)
# torch says so where the first product of a process is one of a gradient.
pytestmark = pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning")
gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
ROUTES = {
    "softmax": {},
    "softmax, not normalized": {"normalize": False},
    "sigmoid": {"scoring": "sigmoid", "scale": 2.5},
    "sigmoid, not normalized": {"scoring": "sigmoid", "normalize": False, "scale": 0.5},
    "groups": {"scoring": "sigmoid", "groups": 4, "top_groups": 2},
}


def _inputs(draw, shape):
    tokens, experts, top, width, inner = shape
    w1, w2 = draw((experts, 2 * inner, width)), draw((experts, width, inner))
    return draw((tokens, width)), draw((tokens, experts)), w1, w2, top


def _scaled(function):
    """A quarter of the weights, exactly: sums of the size of 1."""
    return lambda x, logits, w1, w2, top: function(x, logits, w1 * 0.25, w2 * 0.25, top)


TestMoe = op_tests(
    op="moe",
    call=lambda op, *given: _scaled(op)(*given),
    reference=_scaled(reference.moe),
    inputs=_inputs,
    shapes=cases.SHAPES,
    dtypes=DTYPES,
    backward=True,
    factor=16.0,  # sums that cancel, of a few rows
    leave_out={"special_values": "which expert a NaN chooses is not that of the reference"},
)


@pytest.fixture(autouse=True)
def _exact_floats():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    yield
    torch.backends.cuda.matmul.allow_tf32 = before


def drawn(shape, dtype, device, seed=7):
    """x, logits, w1 and w2 whose products are of the size of 1."""
    tokens, experts, _, width, inner = shape
    source = torch.Generator().manual_seed(seed)
    sizes = ((tokens, width), (tokens, experts), (experts, 2 * inner, width))
    x, logits, w1, w2 = (
        torch.randn(size, generator=source) for size in (*sizes, (experts, width, inner))
    )
    w1, w2 = w1 / max(width, 1) ** 0.5, w2 / max(inner, 1) ** 0.5
    return tuple(t.to(device, dtype) for t in (x, logits, w1, w2))


def off(got, exact):
    """The distance of the whole, in shares of the exact result."""
    return ((got.double() - exact).norm() / exact.norm()).item()


def by_the_same_experts(kernel, given, top, **options):
    """The reference in float64 with the experts that the kernel chose."""
    x, logits, w1, w2 = given
    narrow = logits.detach()
    # On GPUs logits of at most 32 bits are ranked; these are such, widened.
    _, ids = kernel.route(narrow.float() if narrow.is_cuda else narrow, top, **options)
    scores = logits.double()
    scores = scores.sigmoid() if options.get("scoring") == "sigmoid" else scores.softmax(1)
    weights = scores.gather(1, ids.long())
    if options.get("normalize", True):
        weights = weights / weights.sum(1, keepdim=True)
    weights = weights * options.get("scale", 1.0)
    return reference.experts(x.double(), weights, ids, w1.double(), w2.double())


NEAR = {torch.float32: 2e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}
# Near the sum of three roundings: of what is between the products, of an expert, of the sum.


@per_dtype
@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_the_error_that_is_stated(kernel, device, dtype, options):
    given = drawn((45, 16, 3, 64, 48), dtype, device)
    exact = by_the_same_experts(kernel, given, 3, **options)
    assert off(kernel.moe(*given, 3, **options), exact) <= NEAR[dtype]


@gpu
@pytest.mark.gpu
@per_dtype
@pytest.mark.parametrize("shape", cases.LARGE.values(), ids=cases.LARGE)
def test_large_sizes_and_their_gradients(kernel, device, dtype, shape):
    top = shape[2]
    given = [t.requires_grad_() for t in drawn(shape, dtype, device)]
    exact = [t.detach().double().requires_grad_() for t in given]
    want = by_the_same_experts(kernel, exact, top)
    got = kernel.moe(*given, top)
    assert off(got, want) <= NEAR[dtype]
    grad = torch.randn(want.shape, device=device).to(dtype)
    slopes = torch.autograd.grad(got, given, grad)
    right = torch.autograd.grad(want, exact, grad.double())
    near = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[dtype]
    for place, (one, other) in enumerate(zip(slopes, right, strict=True)):
        if top == 1 and place == 1:  # the only weight is 1, whatever the logits are
            assert max(one.abs().max(), other.abs().max()) < 1e-5
        else:
            assert off(one, other) <= near


@per_dtype
@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
@pytest.mark.parametrize("experts", [8, 130, 300])
def test_who_is_chosen(kernel, device, dtype, options, experts):
    experts += -experts % options.get("groups", 1)
    source = torch.Generator().manual_seed(3)
    logits = torch.randn(50, experts, generator=source).to(device, dtype)
    bias = torch.randn(experts, generator=source).to(device) if "scale" in options else None
    weights, ids = kernel.route(logits, 4, bias=bias, **options)
    want, want_ids = reference.route(logits.float(), 4, bias=bias, **options)
    assert torch.equal(ids, want_ids.int())
    torch.testing.assert_close(weights, want, rtol=1e-5, atol=1e-6)


def test_of_equal_scores_the_first_is_chosen_and_nan_chooses_experts_that_exist(kernel, device):
    logits = torch.zeros(3, 70, device=device)
    logits[1, 40:] = 1
    logits[2, 5] = float("nan")
    weights, ids = kernel.route(logits, 3, normalize=False)
    assert ids[:2].tolist() == [[0, 1, 2], [40, 41, 42]]
    assert 0 <= ids[2].min() <= ids[2].max() < 70
    assert weights[2].isnan().all()
    assert not weights[:2].isnan().any()


def test_a_route_has_the_leading_dimensions_of_its_logits(kernel, device):
    weights, ids = kernel.route(torch.randn(2, 3, 8, device=device), 2)
    assert weights.shape == ids.shape == (2, 3, 2)
    given = drawn((6, 8, 2, 16, 8), torch.float32, device)
    x = given[0].view(2, 3, 16)
    assert_bitwise(
        kernel.moe(x, given[1].view(2, 3, 8), *given[2:], 2).view(6, 16), kernel.moe(*given, 2)
    )


UNEVEN = {
    "one expert for all": lambda n: torch.full((n, 1), 3),
    "the last one twice": lambda n: torch.full((n, 2), 7),
    "none is there": lambda n: torch.full((n, 2), -1),
    "some are not there": lambda n: torch.arange(2 * n).view(n, 2) % 11 - 1,
}


@per_dtype
@pytest.mark.parametrize("ids", UNEVEN.values(), ids=UNEVEN)
@pytest.mark.parametrize("tokens", [3, 700])
def test_experts_that_are_not_even(kernel, device, dtype, tokens, ids):
    x, _, w1, w2 = drawn((tokens, 8, 1, 24, 16), dtype, device)
    ids = ids(tokens).to(device)
    weights = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)).to(device)
    exact = reference.experts(x.double(), weights.double(), ids, w1.double(), w2.double())
    got = kernel.experts(x, weights, ids, w1, w2)
    assert got.isfinite().all()
    assert (got.double() - exact).norm() <= NEAR[dtype] * exact.norm()


@pytest.mark.parametrize("options", ROUTES.values(), ids=ROUTES)
def test_the_gradient_in_float64(kernel, device, options):
    if device == "cuda":
        pytest.skip("float64 is computed on CPUs only")
    source = torch.Generator().manual_seed(5)
    leaves = [
        torch.randn(size, generator=source, dtype=torch.float64, requires_grad=True)
        for size in ((5, 4), (5, 8), (8, 6, 4), (8, 4, 3))
    ]
    assert torch.autograd.gradcheck(lambda *given: kernel.moe(*given, 2, **options), leaves)


def test_the_gradient_with_ids_that_are_not_there(kernel, device):
    x, _, w1, w2 = drawn((40, 8, 2, 24, 16), torch.float32, device)
    ids = UNEVEN["some are not there"](40).to(device)
    weights = torch.rand(ids.shape, device=device)
    leaves = [t.requires_grad_() for t in (x, weights, w1, w2)]
    x, weights, w1, w2 = leaves
    got = torch.autograd.grad(kernel.experts(x, weights, ids, w1, w2).sum(), leaves)
    want = torch.autograd.grad(reference.experts(x, weights, ids, w1, w2).sum(), leaves)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def poison(device):
    """Memory that is taken next has NaN."""
    if device == "cuda":
        parts = [torch.full((n,), torch.nan, device=device) for n in (1 << 10, 1 << 16, 1 << 22)]
        del parts


def sorted_rows(ids, experts):
    """What ``sort`` gives, by a loop."""
    flat = ids.flatten().tolist()
    positions, assignments, ends = [-1] * len(flat), [], []
    for e in range(experts):
        for i in (i for i, own in enumerate(flat) if own == e):
            positions[i] = len(assignments)
            assignments.append(i)
        assignments += [-1] * (-len(assignments) % 8)
        ends.append(len(assignments))
    rows = (len(flat) + 7 * min(len(flat), experts) + 7) // 8 * 8
    return positions, assignments + [-1] * (rows - len(assignments)), ends


@pytest.mark.parametrize("ids", UNEVEN.values(), ids=UNEVEN)
@pytest.mark.parametrize("tokens", [0, 1, 3, 200, 700])
@pytest.mark.parametrize("experts", [8, 40, 1024])
def test_rows_by_expert(kernel, device, ids, tokens, experts):
    ids = ids(tokens).int()
    poison(device)
    got = kernel.backward.sort(ids.to(device), experts)
    assert got[0].shape == ids.shape
    assert tuple(t.flatten().tolist() for t in got) == sorted_rows(ids, experts)


kept_shapes = [pytest.param(shape, id=name) for name, shape in cases.SHAPES.items()] + [
    pytest.param(shape, id=name, marks=(gpu, pytest.mark.gpu))
    for name, shape in cases.LARGE.items()
]


@per_dtype
@pytest.mark.parametrize("shape", kept_shapes)
def test_what_is_kept_for_the_gradient(kernel, device, dtype, shape):
    tokens, experts, top, _, inner = shape
    x, logits, w1, w2 = drawn(shape, dtype, device)
    weights, ids = kernel.route(logits, top)
    poison(device)
    y, both, *rows = kernel.functional._experts_kept(x, weights, ids, w1, w2)
    assert_bitwise(y, kernel.functional._experts(x, weights, ids, w1, w2, None, None))
    assert both.shape == (len(rows[1]), 2 * inner)
    if 0 in {tokens, inner}:
        return  # the gradient has no use for rows
    for one, other in zip(rows, kernel.backward.sort(ids, experts), strict=True):
        assert_bitwise(one, other)
    there = rows[1] >= 0
    token = rows[1][there].long() // top
    expert = torch.searchsorted(rows[2], there.nonzero().flatten(), right=True)
    wide, exact = w1.double(), x.new_empty((len(token), 2 * inner), dtype=torch.float64)
    for e in expert.unique().tolist():
        exact[expert == e] = x[token[expert == e]].double() @ wide[e].T
    got = both[there].double()
    assert (got - exact).norm() <= NEAR[dtype] * exact.norm()
    # Of each number: one that is not written is NaN, or as far off as it is large.
    near = 10 * NEAR[dtype]
    torch.testing.assert_close(got, exact, rtol=near, atol=near)


@per_dtype
@pytest.mark.parametrize("inner", [24, 37, 2056, 2051])
def test_rows_that_no_expert_has_are_zeros_whatever_is_there(kernel, device, dtype, inner):
    ids = (torch.arange(46).view(23, 2) % 11 - 1).int().to(device)
    positions, assignments, _ = kernel.backward.sort(ids, 8)
    rows, empty = len(assignments), assignments < 0
    source = torch.Generator().manual_seed(4)

    def matrix(rows, columns):
        return torch.randn(rows, columns, generator=source).to(device, dtype)

    both, plain, x, grad = (
        matrix(rows, 2 * inner),
        matrix(rows, inner),
        matrix(23, inner),
        matrix(23, inner),
    )
    both[empty], plain[empty] = torch.nan, torch.nan
    weights = torch.rand(23, 2, generator=source).to(device)
    poison(device)
    dboth, weighted, dweights = kernel.backward._gate_backward(both, plain, weights, assignments)
    for one in (dboth, weighted, dweights, *kernel.backward._spread(x, grad, assignments, 2)):
        assert one.isfinite().all()
        assert (one[empty] == 0).all()

    exact = both[~empty].double().requires_grad_()
    gate, up = exact.chunk(2, 1)
    weight = weights.flatten()[assignments[~empty].long()].double().requires_grad_()
    h = torch.nn.functional.silu(gate) * up * weight[:, None]
    want = torch.autograd.grad(h, (exact, weight), plain[~empty].double())
    near = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    assert off(dboth[~empty], want[0]) <= near
    assert off(dweights[~empty], want[1]) <= near
    assert off(weighted[~empty], h.detach()) <= near

    both[:, :inner][empty] = torch.nan  # of which no token has a row
    y, own = kernel.backward._sum_rows(both, dweights, positions)
    there = (positions >= 0)[:, :, None]
    each = torch.where(there, both[positions.clamp(min=0).long()].double(), 0)
    assert off(y, each.sum(1)) <= near
    assert_bitwise(own, torch.where(there[:, :, 0], dweights[positions.clamp(min=0).long()], 0))


def test_the_parts_of_the_gradient_promise_what_they_do(kernel, device):
    ids = UNEVEN["some are not there"](9).int().to(device)
    parts = kernel.backward
    positions, assignments, _ = parts.sort(ids, 8)
    x, weights = torch.randn(9, 16, device=device), torch.rand(9, 2, device=device)
    rows, _ = parts._spread(x, x, assignments, 2)
    gated = (rows, rows[:, :8].contiguous(), weights, assignments)
    for op, given in (
        (parts.sort, (ids, 8)),
        (parts._spread, (x, x, assignments, 2)),
        (parts._gate_backward, gated),
        (parts._sum_rows, (rows, torch.rand(len(rows), device=device), positions)),
    ):
        torch.library.opcheck(op, given)


def own_gradients(given, ids, grad):
    """Those of the reference in float64, in x, weights, w1 and w2."""
    leaves = [t.detach().double().requires_grad_() for t in given]
    x, weights, w1, w2 = leaves
    y = reference.experts(x, weights, ids, w1, w2) + 0 * x  # a graph even where no expert is there
    got = torch.autograd.grad(y, leaves, grad.double(), allow_unused=True)
    return [torch.zeros_like(t) if g is None else g for g, t in zip(got, leaves, strict=True)]


GRADIENTS = {
    "small": (40, 8, 24, 16),
    "vectors by warps": (300, 8, 136, 264),
    "vectors by blocks": (70, 8, 72, 2056),
    "single numbers by warps": (60, 8, 13, 37),
    "single numbers by blocks": (20, 8, 10, 2051),
    "no tokens": (0, 8, 24, 16),
    "nothing inside": (5, 8, 24, 0),
}


@per_dtype
@pytest.mark.parametrize("ids", UNEVEN.values(), ids=UNEVEN)
@pytest.mark.parametrize("shape", GRADIENTS.values(), ids=GRADIENTS)
def test_the_gradient_is_that_of_the_reference_in_every_run(kernel, device, dtype, shape, ids):
    tokens, experts, width, inner = shape
    x, _, w1, w2 = drawn((tokens, experts, 1, width, inner), dtype, device)
    ids = ids(tokens).to(device)
    source = torch.Generator().manual_seed(4)
    weights = torch.rand(ids.shape, generator=source).to(device)
    grad = torch.randn(x.shape, generator=source).to(device, dtype)
    leaves = [t.requires_grad_() for t in (x, weights, w1, w2)]

    def gradients():
        y = kernel.experts(x, weights, ids, w1, w2)
        return torch.autograd.grad(y, leaves, grad)

    got = gradients()
    near = {torch.float32: 4e-6, torch.float16: 2e-3, torch.bfloat16: 1.5e-2}[dtype]
    for one, exact in zip(got, own_gradients(leaves, ids, grad), strict=True):
        assert one.isfinite().all()
        assert (one.double() - exact).norm() <= near * exact.norm()
    poison(device)
    for one, again in zip(got, gradients(), strict=True):
        assert_bitwise(one, again)
    y = kernel.experts(x, weights, ids, w1, w2)
    for _ in range(2):  # what is kept is not changed
        for one, again in zip(
            got, torch.autograd.grad(y, leaves, grad, retain_graph=True), strict=True
        ):
            assert_bitwise(one, again)


def test_with_and_without_a_gradient_the_bits_are_the_same(kernel, device):
    given = drawn((70, 8, 2, 64, 48), torch.bfloat16, device)
    plain = kernel.moe(*given, 2)
    assert not plain.requires_grad
    recorded = kernel.moe(*(t.clone().requires_grad_() for t in given), 2)
    assert_bitwise(recorded.detach(), plain)


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype:UserWarning")
def test_the_host_waits_for_nothing(kernel, device):
    given = drawn((200, 16, 2, 64, 64), torch.bfloat16, device)
    with_gradient = [t.clone().requires_grad_() for t in given]
    kernel.moe(*with_gradient, 2).sum().backward()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        y = kernel.moe(*with_gradient, 2)
        if torch.cuda.get_device_capability() == (9, 0):
            y.sum().backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")


@gpu
@pytest.mark.gpu
@pytest.mark.parametrize("tokens", [4, 300])
def test_a_graph_follows_the_experts_that_are_chosen(kernel, device, tokens):
    shape = (tokens, 16, 2, 64, 64)
    x, logits, w1, w2 = drawn(shape, torch.bfloat16, device)
    kernel.moe(x, logits, w1, w2, 2)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = kernel.moe(x, logits, w1, w2, 2)
    for seed in (1, 2):
        fresh = drawn(shape, torch.bfloat16, device, seed)
        x.copy_(fresh[0])
        logits.copy_(fresh[1])
        graph.replay()
        assert_bitwise(y, kernel.moe(x, logits, w1, w2, 2))


@gpu
@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning")
@pytest.mark.parametrize("tokens", [4, 700])
def test_a_graph_of_the_gradient_follows_the_experts_that_are_chosen(kernel, device, tokens):
    if torch.cuda.get_device_capability() != (9, 0):
        pytest.skip("the host waits once for the loop over the experts")
    shape = (tokens, 16, 2, 64, 64)
    given = [t.requires_grad_() for t in drawn(shape, torch.bfloat16, device)]
    grad = torch.randn(tokens, 64, device=device).bfloat16()

    def step():
        y = kernel.moe(*given, 2)
        return y, *torch.autograd.grad(y, given, grad)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        recorded = step()
    for seed in (1, 2):
        with torch.no_grad():
            for one, fresh in zip(given, drawn(shape, torch.bfloat16, device, seed), strict=True):
                one.copy_(fresh)
        graph.replay()
        for one, other in zip(recorded, step(), strict=True):
            assert_bitwise(one.detach(), other.detach())


scaled_shapes = [pytest.param(shape, id=name) for name, shape in cases.SCALED.items()] + [
    pytest.param(shape, id=name, marks=(gpu, pytest.mark.gpu))
    for name, shape in cases.SCALED_LARGE.items()
]


def drawn_scaled(shape, dtype, device):
    """x, logits, w1, w2 of 8 bits and their factors."""
    tokens, experts, _, width, inner = shape
    source = torch.Generator().manual_seed(11)
    x, logits = (
        torch.randn(size, generator=source) for size in ((tokens, width), (tokens, experts))
    )
    weights = []
    for rows, columns in ((2 * inner, width), (width, inner)):
        wide = torch.randn((experts, rows, columns), generator=source) * 60
        blocks = (experts, -(-rows // 128), -(-columns // 128))
        scale = (0.2 + torch.rand(blocks, generator=source)) / (60 * columns**0.5)
        weights.append((wide.clamp(-448, 448).to(torch.float8_e4m3fn).to(device), scale.to(device)))
    (w1, w1_scale), (w2, w2_scale) = weights
    return x.to(device, dtype), logits.to(device), w1, w2, w1_scale, w2_scale


def exact_scaled(kernel, given, top):
    x, logits, w1, w2, w1_scale, w2_scale = given
    wide = [reference.widened(w, s, torch.float64) for w, s in ((w1, w1_scale), (w2, w2_scale))]
    return by_the_same_experts(kernel, (x, logits, *wide), top)


@per_dtype
@pytest.mark.parametrize("shape", scaled_shapes)
def test_weights_of_8_bits(kernel, device, dtype, shape):
    given = drawn_scaled(shape, dtype, device)
    x, logits, w1, w2, w1_scale, w2_scale = given
    factors = {"w1_scale": w1_scale, "w2_scale": w2_scale}
    got = kernel.moe(x, logits, w1, w2, shape[2], **factors)
    assert got.shape == x.shape
    assert got.dtype == dtype
    exact = exact_scaled(kernel, given, shape[2])
    assert (got.double() - exact).norm() <= NEAR[dtype] * exact.norm()
    assert_bitwise(kernel.moe(x, logits, w1, w2, shape[2], **factors), got)


@per_dtype
@pytest.mark.parametrize("ids", UNEVEN.values(), ids=UNEVEN)
@pytest.mark.parametrize("tokens", [3, 300])
def test_weights_of_8_bits_with_experts_that_are_not_even(kernel, device, dtype, tokens, ids):
    x, _, w1, w2, w1_scale, w2_scale = drawn_scaled((tokens, 8, 1, 48, 144), dtype, device)
    ids = ids(tokens).to(device)
    weights = torch.rand(ids.shape, generator=torch.Generator().manual_seed(1)).to(device)
    wide = [reference.widened(w, s, torch.float64) for w, s in ((w1, w1_scale), (w2, w2_scale))]
    exact = reference.experts(x.double(), weights.double(), ids, *wide)
    got = kernel.experts(x, weights, ids, w1, w2, w1_scale=w1_scale, w2_scale=w2_scale)
    assert got.isfinite().all()
    assert (got.double() - exact).norm() <= NEAR[dtype] * exact.norm()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_every_weight_of_8_bits_is_what_torch_says(kernel, device, dtype):
    codes = torch.arange(256, dtype=torch.uint8)
    codes[[0x7F, 0xFF]] = 0  # NaN
    codes = codes.view(torch.float8_e4m3fn)
    one = torch.ones(1).to(torch.float8_e4m3fn)
    w1 = torch.cat((codes.expand(16, 256), one.expand(16, 256)))  # up is 1
    w2 = torch.eye(256, 16).to(torch.float8_e4m3fn)
    got = kernel.experts(
        torch.eye(256, dtype=dtype, device=device),
        torch.ones(256, 1, device=device),
        torch.zeros(256, 1, dtype=torch.int32, device=device),
        w1[None].to(device),
        w2[None].to(device),
        w1_scale=torch.ones(1, 1, 2, device=device),
        w2_scale=torch.ones(1, 2, 1, device=device),
    )
    want = torch.nn.functional.silu(codes.float())[:, None].expand(256, 16)
    torch.testing.assert_close(got[:, :16].float().cpu(), want, rtol=5e-3, atol=1e-6)


def test_the_gradient_in_x_and_the_weights_of_weights_of_8_bits(kernel, device):
    given = drawn_scaled((30, 8, 2, 48, 144), torch.float32, device)
    x, logits, w1, w2, w1_scale, w2_scale = given
    weights, ids = kernel.route(logits, 2)
    leaves = [x.requires_grad_(), weights.requires_grad_()]
    y = kernel.experts(x, weights, ids, w1, w2, w1_scale=w1_scale, w2_scale=w2_scale)
    wide = [reference.widened(w, s, torch.float32) for w, s in ((w1, w1_scale), (w2, w2_scale))]
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(2)).to(device)
    got = torch.autograd.grad(y, leaves, grad)
    want = torch.autograd.grad(reference.experts(x, weights, ids, *wide), leaves, grad)
    for one, other in zip(got, want, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_compiled_block_of_8_bits_is_the_same(kernel, device):
    given = drawn_scaled((20, 8, 2, 48, 144), torch.bfloat16, device)

    def block(*given):
        *tensors, w1_scale, w2_scale = given
        return kernel.moe(*tensors, 2, w1_scale=w1_scale, w2_scale=w2_scale)

    compiled = torch.compile(block, fullgraph=True, backend="aot_eager")
    assert_bitwise(compiled(*given), block(*given))
    torch.library.opcheck(
        kernel.functional._experts,
        (given[0], *kernel.route(given[1], 2), *given[2:]),
        test_utils="test_faketensor",  # torch has no arithmetic of 8 bits for the others
    )


REFUSED_SCALED = {
    "one factor": ({"w2_scale": None}, "belong together, w2_scale is None"),
    "dtype": ({"w1": torch.ones(8, 288, 48)}, "w1 must be Float8_e4m3fn with factors, got Float"),
    "factors": (
        {"w1_scale": torch.ones(8, 2, 1)},
        r"w1_scale must be \[8, 3, 1\], got \[8, 2, 1\]",
    ),
    "dtype of factors": (
        {"w2_scale": torch.ones(8, 1, 2).half()},
        "w2_scale must be Float, got Half",
    ),
}


@pytest.mark.parametrize(("other", "message"), REFUSED_SCALED.values(), ids=REFUSED_SCALED)
def test_refusals_of_weights_of_8_bits(kernel, device, other, message):
    names = ("x", "router_logits", "w1", "w2", "w1_scale", "w2_scale")
    given = dict(zip(names, drawn_scaled((5, 8, 2, 48, 144), torch.float32, device), strict=True))
    moved = {n: t.to(device) if isinstance(t, torch.Tensor) else t for n, t in other.items()}
    with pytest.raises(ValueError, match=message):
        kernel.moe(**{**given, **moved}, top_k=2)


def test_autocast_casts(kernel, device):
    x, logits, w1, w2 = drawn((9, 4, 2, 16, 8), torch.float32, device)
    w1.requires_grad_()
    with torch.autocast(device, torch.bfloat16):
        y = kernel.moe(x, logits, w1, w2, 2)
    assert y.dtype == torch.bfloat16
    y.float().sum().backward()
    assert w1.grad.dtype == torch.float32


class Experts(torch.nn.Module):
    """As transformers has them, for a model that names them ``MoEMLP``."""

    def __init__(self, experts, width, inner):
        super().__init__()
        self.gate_up_proj = torch.nn.Parameter(torch.randn(experts, 2 * inner, width) / 8)
        self.down_proj = torch.nn.Parameter(torch.randn(experts, width, inner) / 8)

    def forward(self, hidden_states, top_k_index, top_k_weights):
        return reference.experts(
            hidden_states, top_k_weights, top_k_index, self.gate_up_proj, self.down_proj
        )


def test_kernelize_puts_the_layer_into_a_model(kernel, device):
    named = kernforge.use_kernel_forward_from_hub("MoEMLP")(Experts)
    model = torch.nn.ModuleList([named(8, 32, 16)]).to(device)
    x = torch.randn(11, 32, device=device)
    weights, ids = reference.route(torch.randn(11, 8, device=device), 2)
    want = model[0](x, ids, weights)
    builds = Path(kernel.__file__).parents[1]
    repository = kernforge.LocalLayerRepository(builds, layer_name="MoEMLP")
    with kernforge.use_kernel_mapping({"MoEMLP": {device: repository}}):
        replaced = kernforge.kernelize(model, mode=kernforge.Mode.TRAINING, device=device)
    got = replaced[0](x, ids, weights)
    assert replaced[0].forward.__func__ is not Experts.forward
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    got.sum().backward()
    assert all(one.grad is not None for one in replaced.parameters())


def _refused(**other):
    given = {
        "x": torch.randn(4, 6),
        "router_logits": torch.randn(4, 8),
        "w1": torch.randn(8, 10, 6),
        "w2": torch.randn(8, 6, 5),
        "top_k": 2,
    }
    return {**given, **other}


REFUSED = {
    "dtype": ({"x": torch.ones(4, 6).int()}, "float32, .* got Int"),
    "dtype of w1": ({"w1": torch.ones(8, 10, 6).half()}, "w1 must be Float like x, got Half"),
    "w1": ({"w1": torch.ones(8, 9, 6)}, r"w1 must be \[8, 10, 6\], got \[8, 9, 6\]"),
    "w2": ({"w2": torch.ones(8, 7, 5)}, r"w2 must be \[8, 6, 5\], got \[8, 7, 5\]"),
    "w2 of two dimensions": ({"w2": torch.ones(6, 5)}, r"w2 must be \[experts.*got \[6, 5\]"),
    "tokens": ({"router_logits": torch.ones(3, 8)}, r"ids must be \[4, top_k\], got \[3, 2\]"),
    "too many": ({"top_k": 9}, "top_k must be from 1 to 8, got 9"),
    "none": ({"top_k": 0}, "top_k must be from 1 to 8, got 0"),
    "open groups": ({"groups": 4, "top_groups": 5}, "top_groups must be from 1 to 4, got 5"),
    "groups": ({"groups": 3}, "groups must divide the 8 experts, got 3"),
    "bias": ({"bias": torch.ones(7)}, r"bias must be \[8\], got \[7\]"),
    "dtype of bias": ({"bias": torch.ones(8).half()}, "bias must be Float, got Half"),
    "scoring": ({"scoring": "relu"}, "'softmax' or 'sigmoid', got 'relu'"),
}


@pytest.mark.parametrize(("other", "message"), REFUSED.values(), ids=REFUSED)
def test_refusals_say_the_value(kernel, device, other, message):
    given = _refused(**other)
    moved = {name: t.to(device) if isinstance(t, torch.Tensor) else t for name, t in given.items()}
    with pytest.raises(ValueError, match=message):
        kernel.moe(**moved)


@gpu
@pytest.mark.gpu
def test_a_tensor_on_the_other_device_is_refused(kernel, device):
    other = "cuda" if device == "cpu" else "cpu"
    with pytest.raises(NotImplementedError, match=other.upper()):
        kernel.route(torch.randn(4, 6, device=other), 2)

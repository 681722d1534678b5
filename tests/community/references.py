# SPDX-License-Identifier: Apache-2.0
"""Compare a kernel that has no tests of its own with a reference in torch: a file for pytest.

``community.py`` copies this file into the tests of such a kernel. Most kernels bring references:
the ``verify`` methods of their ``benchmarks/benchmark.py``, compared here as the ``kernels`` client
does it. For the others the reference is written down here.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import json
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("no NVIDIA GPU here", allow_module_level=True)

Test = TypeVar("Test")
HOME = Path(__file__).resolve().parents[1]
BENCHMARK = HOME / "benchmarks" / "benchmark.py"
NAME = json.loads(next(HOME.glob("built-*.json")).read_text())["python_name"]
ATOL = 1e-2  # of the kernels client's `benchmark`


def only(name: str) -> Callable[[Test], Test | None]:
    """Hide from pytest what compares another kernel."""
    return lambda test: test if name == NAME else None


def script() -> ModuleType | None:
    """The kernel's own benchmark, as a module."""
    if not BENCHMARK.is_file():
        return None
    allclose = torch.allclose
    spec = importlib.util.spec_from_file_location("own_benchmark", BENCHMARK)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.allclose, torch.allclose = torch.allclose, allclose  # some replace it with one of theirs
    return module


SCRIPT = script()


def workloads() -> list[tuple[type, str]]:
    """Every workload that has a reference."""
    found = []
    for one in vars(SCRIPT).values() if SCRIPT else ():
        if inspect.isclass(one) and one.__module__ == "own_benchmark":
            names = [n.removeprefix("verify_") for n in dir(one) if n.startswith("verify_")]
            found += [(one, name) for name in names]
    return found


WORKLOADS = workloads()


def same_as_its_reference(cls: type, name: str) -> None:
    """The outcome of a workload is that of its own reference."""
    assert SCRIPT
    one: Any = cls()
    one.kernel, one.device = importlib.import_module(NAME), "cuda"
    torch.manual_seed(one.seed or 0)
    getattr(one, f"setup_{name}", one.setup)()
    getattr(one, f"benchmark_{name}")()
    torch.cuda.synchronize()
    wanted = getattr(one, f"verify_{name}")()
    assert one.out.shape == wanted.shape
    assert torch.isfinite(wanted.float()).all()
    assert SCRIPT.allclose(one.out, wanted, atol=ATOL)


if WORKLOADS:
    test_workload = pytest.mark.parametrize(("cls", "name"), WORKLOADS)(same_as_its_reference)


def near(got: Any, wanted: Any, share: float) -> None:
    """Fail if the difference has more than a share of the reference's norm."""
    got, wanted = got.detach().double().cpu(), wanted.detach().double().cpu()
    assert got.shape == wanted.shape
    assert (got - wanted).norm() <= share * wanted.norm()


def compared(ours: Any, reference: Any, share: float, *inputs: Any) -> None:
    """Compare a function and its gradients with those of a reference in float64."""
    mine = [x.detach().clone().requires_grad_() for x in inputs]
    exact = [x.detach().double().requires_grad_() for x in inputs]
    got, wanted = ours(*mine), reference(*exact)
    near(got, wanted, share)
    slope = torch.randn_like(wanted)
    got.backward(slope.to(got.dtype))
    wanted.backward(slope)
    for one, other in zip(mine, exact, strict=True):
        near(one.grad, other.grad, share)


def draw(*shape: int, dtype: Any = None) -> Any:
    """Normal numbers on the GPU."""
    return torch.randn(*shape, device="cuda", dtype=dtype or torch.float32)


@only("cv_utils")
@pytest.mark.parametrize("count", [1, 63, 64, 65, 1000])
@pytest.mark.parametrize("matrix", [False, True])
def test_boxes_that_overlap(count: int, *, matrix: bool) -> None:
    """Greedy suppression by overlap, as a loop in Python does it."""
    kernel = importlib.import_module(NAME)
    torch.manual_seed(count)
    corner = torch.rand(count, 2) * 100
    boxes = torch.cat([corner, corner + torch.rand(count, 2) * 40 + 1], dim=1)
    scores = torch.rand(count)
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    both = (high - low).clamp(min=0).prod(-1)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlap = both / (area[:, None] + area[None] - both)
    kept: list[int] = []
    for one in scores.argsort(descending=True, stable=True).tolist():
        if all(overlap[one, other] <= 0.5 for other in kept):
            kept.append(one)
    given = overlap if matrix else boxes
    got = kernel.generic_nms(given.cuda(), scores.cuda(), 0.5, matrix)
    assert got.tolist() == kept


@only("cv_utils")
@pytest.mark.parametrize("shape", [(1, 2, 2), (2, 64, 48), (3, 130, 258)])
def test_connected_components(shape: tuple[int, int, int]) -> None:
    """Components of 8 neighbours and their sizes, as scipy labels them."""
    ndimage = pytest.importorskip("scipy.ndimage")
    kernel = importlib.import_module(NAME)
    torch.manual_seed(shape[1])
    image = (torch.rand(shape[0], 1, *shape[1:]) < 0.4).to(torch.uint8)
    labels, counts = (one.cpu() for one in kernel.cc_2d(image.cuda(), True))
    for picture, label, count in zip(image[:, 0], labels[:, 0], counts[:, 0], strict=True):
        wanted, many = ndimage.label(picture.numpy(), structure=[[1] * 3] * 3)
        wanted = torch.from_numpy(wanted)
        pairs = {*zip(wanted.flatten().tolist(), label.flatten().tolist(), strict=True)}
        assert len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
        assert ((label == 0) == (picture == 0)).all()
        sizes = torch.bincount(wanted.flatten(), minlength=many + 1)
        sizes[0] = 0
        assert (count == sizes[wanted]).all()


@only("liger_kernels")
def test_rms_norm() -> None:
    """Rows, x / sqrt(mean(x^2) + eps) * w."""
    function = importlib.import_module(f"{NAME}.rms_norm").LigerRMSNormFunction

    def ours(x: Any, w: Any) -> Any:
        return function.apply(x, w, 1e-6, 0, "llama", False, None)

    def wanted(x: Any, w: Any) -> Any:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * w

    compared(ours, wanted, 1e-5, draw(37, 1000), draw(1000))


@only("liger_kernels")
def test_layer_norm() -> None:
    """The layer_norm of torch."""
    function = importlib.import_module(f"{NAME}.layer_norm").LigerLayerNormFunction

    def wanted(x: Any, w: Any, b: Any) -> Any:
        return torch.nn.functional.layer_norm(x, (768,), w, b, 1e-5)

    inputs = draw(50, 768), draw(768), draw(768)
    compared(lambda x, w, b: function.apply(x, w, b, 1e-5), wanted, 1e-5, *inputs)


@only("liger_kernels")
def test_gated_linear_units() -> None:
    """silu(a) * b and gelu(a) * b."""
    silu = importlib.import_module(f"{NAME}.swiglu").LigerSiLUMulFunction
    gelu = importlib.import_module(f"{NAME}.geglu").LigerGELUMulFunction
    functional = torch.nn.functional
    inputs = draw(40, 1500), draw(40, 1500)
    compared(silu.apply, lambda a, b: functional.silu(a) * b, 1e-5, *inputs)
    compared(gelu.apply, lambda a, b: functional.gelu(a, approximate="tanh") * b, 1e-5, *inputs)


@only("liger_kernels")
def test_rotary_embedding() -> None:
    """Pairs turned: q * cos + rotate_half(q) * sin."""
    kernel = importlib.import_module(NAME)
    angle = draw(1, 33, 32).repeat(1, 1, 2)
    cos, sin = angle.cos(), angle.sin()

    def turned(x: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cos.to(x.dtype) + torch.cat([-second, first], -1) * sin.to(x.dtype)

    def ours(q: Any, k: Any) -> Any:
        return torch.cat([one.flatten() for one in kernel.liger_rotary_pos_emb(q, k, cos, sin)])

    def wanted(q: Any, k: Any) -> Any:
        return torch.cat([turned(q).flatten(), turned(k).flatten()])

    compared(ours, wanted, 1e-5, draw(2, 4, 33, 64), draw(2, 2, 33, 64))


@only("liger_kernels")
def test_linear_cross_entropy() -> None:
    """Cross entropy of a linear layer whose product is not kept."""
    fused = importlib.import_module(f"{NAME}.layers").liger_fused_linear_cross_entropy
    target = torch.randint(0, 500, (60,), device="cuda")
    target[3] = -100

    def wanted(x: Any, w: Any) -> Any:
        return torch.nn.functional.cross_entropy(x @ w.T, target)

    compared(lambda x, w: fused(x, w, target), wanted, 1e-3, draw(60, 128), draw(500, 128) / 11)


@only("scattermoe")
def test_linear_layers_of_experts() -> None:
    """Each row times the matrices of its two experts, weighted."""
    kernel = importlib.import_module(NAME)
    rows, experts, most = 100, 8, 2
    torch.manual_seed(0)
    chosen = torch.rand(rows, experts, device="cuda").topk(most).indices
    ordered, back = chosen.flatten().sort()
    ends = torch.bincount(chosen.flatten(), minlength=experts).cumsum(0)
    gates = torch.rand(rows, most, device="cuda")

    def ours(x: Any, w: Any) -> Any:
        return kernel.parallel_linear(x, w, most, ordered, back, ends, gates=gates)

    def wanted(x: Any, w: Any) -> Any:
        each = torch.einsum("ri,rmio->rmo", x, w[chosen])
        return (each * gates.to(x.dtype)[..., None]).sum(1)

    compared(ours, wanted, 2e-3, draw(rows, 64), draw(experts, 64, 96))  # the products are tf32's


@only("fla")
@pytest.mark.parametrize("form", ["chunk", "fused_recurrent"])
def test_gated_delta_rule(form: str) -> None:
    """The recurrence step by step: S = exp(g) S + k (beta (v - S k)), o = S q / sqrt(d)."""
    function = getattr(importlib.import_module(NAME), f"{form}_gated_delta_rule")
    batch, steps, heads, width = 2, 130, 3, 64
    torch.manual_seed(1)
    dtype = torch.bfloat16 if form == "chunk" else torch.float32
    q, k = (torch.nn.functional.normalize(draw(batch, steps, heads, width), dim=-1) for _ in "qk")
    v, beta = draw(batch, steps, heads, width), torch.rand(batch, steps, heads, device="cuda")
    g = torch.nn.functional.logsigmoid(draw(batch, steps, heads) + 2)
    q, k, v, beta = (one.to(dtype) for one in (q, k, v, beta))
    got, _ = function(q=q, k=k, v=v, g=g, beta=beta)
    q, k, v, beta, g = (one.double() for one in (q, k, v, beta, g))
    state = torch.zeros(batch, heads, width, width, device="cuda", dtype=torch.float64)
    wanted = torch.empty_like(v)
    for t in range(steps):
        state = state * g[:, t, :, None, None].exp()
        change = beta[:, t, :, None] * (v[:, t] - torch.einsum("bhkv,bhk->bhv", state, k[:, t]))
        state = state + torch.einsum("bhk,bhv->bhkv", k[:, t], change)
        wanted[:, t] = torch.einsum("bhkv,bhk->bhv", state, q[:, t]) / width**0.5
    near(got, wanted, 1e-2 if form == "chunk" else 1e-4)


@only("trimul_gpumode")
def test_the_function_for_hopper() -> None:
    """kernel_h100 on the data of the kernel's own benchmark, which calls another function."""
    ((cls, name),) = WORKLOADS
    one: Any = cls()
    torch.manual_seed(one.seed)
    one.setup()
    data = (one.input_tensor, one.mask, one.weights, one.config)
    near(importlib.import_module(NAME).kernel_h100(data), getattr(one, f"verify_{name}")(), 1e-2)

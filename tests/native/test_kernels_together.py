# SPDX-License-Identifier: Apache-2.0
"""A block of a transformer made of several kernels of the collection: one compiled graph, torch's results.

What was built before, here or on another machine, lies in each project's ``build``; it is published
and loaded by its name. On the GPU, torch replays the compiled block as CUDA graphs, too.
"""

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from support import transformer_block as blocks  # noqa: E402 - skipped without torch
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch._dynamo.utils import counters  # noqa: E402

import kernforge  # noqa: E402

pytestmark = [
    pytest.mark.native,
    pytest.mark.torch,
    # Torch's own, of its compiler and its profiler.
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning"),
    pytest.mark.filterwarnings(r"ignore:\s*Online softmax is disabled:UserWarning"),
    pytest.mark.filterwarnings("ignore:Attempting to run cuBLAS:UserWarning"),
    pytest.mark.filterwarnings("ignore:The AccumulateGrad node's stream:UserWarning"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]

ROOT = Path(__file__).parents[2]
SIZES = {"dense": blocks.Sizes(), "sparse": blocks.Sizes(experts=8)}
USED = {
    "dense": {"layer-norm", "matmul", "linear-gelu"},
    "sparse": {"layer-norm", "matmul", "moe"},
    "decoder": set(blocks.NAMES),
}
# Shares of the exact result. In bfloat16, a token may get another expert of two that are nearly equal,
# and torch's own block is as far off.
NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.05}


@pytest.fixture(scope="module")
def registry(tmp_path_factory, kernforge_cli):
    root = tmp_path_factory.mktemp("registry")
    for name in blocks.NAMES:
        project = ROOT / "kernels" / name
        if any(project.glob("build/*/metadata.json")):
            there = ("--build-dir", project / "build", "--registry", root)
            kernforge_cli("publish", project, *there, "--repo-id", f"kernforge/{name}")
    return root


@pytest.fixture(params=USED)
def kind(request):
    return request.param


@pytest.fixture
def kernels(registry, device):
    """The package of each kernel for the device."""
    found = {}
    for name in blocks.NAMES:
        if not (registry / f"kernels--kernforge--{name}").is_dir():
            pytest.skip(f"kernels/{name}/build has no variant: build it")
        try:
            found[name] = kernforge.get_kernel(
                f"kernforge/{name}", version=1, registry=registry, backend=device
            )
        except kernforge.errors.NoVariantError as error:
            pytest.skip(f"no build for {device}: {error.message}")
    return found


@pytest.fixture
def models(kind, kernels, device):
    """Torch's own in float64, and in the tested dtype torch's own and that of kernels."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    def make(parts):
        return blocks.Decoder(parts) if kind == "decoder" else blocks.Block(SIZES[kind], parts)

    own, ours = make(blocks.Torch), make(blocks.of_kernels(kernels.__getitem__))
    ours.load_state_dict(own.state_dict())
    own, ours = own.to(device, dtype), ours.to(device, dtype)
    exact = make(blocks.Torch)
    exact.load_state_dict(own.state_dict())
    return exact.to(device, torch.float64), own, ours


@pytest.fixture
def x(device):
    made = torch.randn(2, 33, 64, generator=torch.Generator().manual_seed(2))
    return made.to(device, torch.bfloat16 if device == "cuda" else torch.float32)


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()


def off(got, exact):
    """The distance of the whole, in shares of the exact result."""
    return ((got.double() - exact).norm() / exact.norm()).item()


def slopes(model, call, x):
    """The result, and the gradients of the argument and of every parameter."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y = call(x)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    y.backward(grad.to(y))
    named = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    return {"y": y.detach().clone(), "x": x.grad.clone(), **named}


def assert_near(got, own, exact):
    """No farther off than the dtype makes torch's own, which a single choice may double."""
    for name, right in exact.items():
        near = max(NEAR[got[name].dtype], 2 * off(own[name], right))
        assert off(got[name], right) <= near, name


def ran(call):
    """Names of all operators that ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key for event in profile.key_averages()}


def test_one_graph_without_a_break(models, kernels, kind, x):
    exact, own, ours = models
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(ours, fullgraph=True, backend=counter)
    got = slopes(ours, compiled, x)
    assert_near(got, slopes(own, own, x), slopes(exact, exact, x.double()))
    assert counter.frame_count == 1
    assert not counters["graph_break"]
    ops = ran(lambda: slopes(ours, compiled, x))
    spaces = {name: module.__name__.partition(".")[0] for name, module in kernels.items()}
    used = {name for name, space in spaces.items() if any(op.startswith(space) for op in ops)}
    assert used == USED[kind]
    assert counter.frame_count == 1


def test_without_a_gradient_the_compiled_block_gives_the_same(models, x):
    exact, own, ours = models
    compiled = torch.compile(ours, fullgraph=True)
    with torch.no_grad():
        want = exact(x.double())
        assert off(compiled(x), want) <= max(NEAR[x.dtype], 2 * off(own(x), want))
        # Another length is another shape: one more graph, which takes any length.
        longer = torch.cat((x, x[:, :7]), dim=1)
        want = exact(longer.double())
        assert off(compiled(longer), want) <= max(NEAR[x.dtype], 2 * off(own(longer), want))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("device", ["cuda"])
def test_as_cuda_graphs_it_follows_its_argument(models, x):
    exact, own, ours = models
    compiled = torch.compile(ours, fullgraph=True, mode="reduce-overhead")

    def step(given):
        torch.compiler.cudagraph_mark_step_begin()
        return slopes(ours, compiled, given)

    for turn in range(4):  # recorded in the second
        given = torch.randn_like(x, dtype=torch.float32).to(x) if turn else x
        assert_near(step(given), slopes(own, own, given), slopes(exact, exact, given.double()))
    assert not counters["inductor"]["cudagraph_skips"]
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step(x)
        torch.cuda.synchronize()
    assert "cudaGraphLaunch" in {event.key for event in profile.key_averages()}

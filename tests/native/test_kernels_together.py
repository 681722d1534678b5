# SPDX-License-Identifier: Apache-2.0
"""A transformer block of several kernels of the collection: one compiled graph, torch's results.

Builds in each project's ``build`` are published and loaded by name. On the GPU, torch replays the
compiled block as CUDA graphs, too.
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
    pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning"),
]

ROOT = Path(__file__).parents[2]
# Relative errors. In bfloat16 two of 66 tokens may get another expert than in float64, of two that
# are nearly equal.
NEAR = {torch.float32: 1e-5, torch.bfloat16: 0.2}


@pytest.fixture(scope="module")
def registry(tmp_path_factory, kernforge_cli):
    root = tmp_path_factory.mktemp("registry")
    for name in blocks.NAMES:
        project = ROOT / "kernels" / name
        if any(project.glob("build/*/metadata.json")):
            words = ("--registry", root, "--repo-id", f"kernforge/{name}")
            kernforge_cli("publish", project, *words)
    return root


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
def models(kernels, device):
    """Torch's own in float64, and in the tested dtype torch's own and that of kernels."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32

    own = blocks.Decoder(blocks.Torch)
    ours = blocks.Decoder(blocks.of_kernels(kernels.__getitem__))
    ours.load_state_dict(own.state_dict())
    own, ours = own.to(device, dtype), ours.to(device, dtype)
    exact = blocks.Decoder(blocks.Torch)
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


def error_of(got, exact):
    """The relative error, by norms."""
    return ((got.double() - exact).norm() / exact.norm()).item()


def slopes(model, call, x, *given):
    """The scores, the gradients of the argument and of every parameter, and the chosen tokens."""
    model.zero_grad()
    x = x.detach().clone().requires_grad_()
    y, chosen = call(x, *given)
    grad = torch.randn(y.shape, generator=torch.Generator().manual_seed(3))
    y.backward(grad.to(y))
    named = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    found = {"y": y.detach().clone(), "x": x.grad.clone(), **named}
    return found, chosen.clone()


def assert_right(models, call, x):
    """Compare result and gradients with float64, within twice the error of torch's own.

    Of tokens with nearly equal scores, another one has another gradient: gradients are compared for
    the chosen tokens.
    """
    exact, own, ours = models
    got, chosen = slopes(ours, call, x)
    mine, _ = slopes(own, own, x, chosen)
    right, _ = slopes(exact, exact, x.double(), chosen)
    for name, value in right.items():
        near = max(NEAR[x.dtype], 2 * error_of(mine[name], value))
        assert error_of(got[name], value) <= near, name
    assert_near(models, got["y"], x)


def assert_near(models, y, x):
    """Compare a result alone."""
    exact, own, _ = models
    with torch.no_grad():
        (want, _), (mine, _) = exact(x.double()), own(x)
    assert error_of(y, want) <= max(NEAR[x.dtype], 2 * error_of(mine, want))


def ran(call):
    """Names of all operators that ran."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        call()
    return {event.key for event in profile.key_averages()}


def test_one_graph_without_a_break(models, kernels, x):
    _, _, ours = models
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(ours, fullgraph=True, backend=counter)
    assert_right(models, compiled, x)
    assert counter.frame_count == 1
    assert not counters["graph_break"]
    ops = ran(lambda: slopes(ours, compiled, x))
    spaces = {name: module.__name__.partition(".")[0] for name, module in kernels.items()}
    assert all(any(op.startswith(space) for op in ops) for space in spaces.values())
    assert counter.frame_count == 1


def test_a_compiled_block_is_right_without_gradients(models, x):
    _, _, ours = models
    compiled = torch.compile(ours, fullgraph=True)
    # Another length is another shape: one more graph, which takes any length.
    for given in (x, torch.cat((x, x[:, :7]), dim=1)):
        with torch.no_grad():
            y, _ = compiled(given)
        assert_near(models, y, given)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
@pytest.mark.parametrize("device", ["cuda"])
def test_cuda_graphs_follow_their_argument(models, x):
    _, _, ours = models
    compiled = torch.compile(ours, fullgraph=True, mode="reduce-overhead")

    def step(given):
        torch.compiler.cudagraph_mark_step_begin()
        return compiled(given)

    source = torch.Generator(x.device).manual_seed(4)
    for turn in range(4):  # recorded in the second
        given = torch.randn(x.shape, device=x.device, generator=source).to(x) if turn else x
        assert_right(models, step, given)
    assert not counters["inductor"]["cudagraph_skips"]
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        slopes(ours, step, x)
        torch.cuda.synchronize()
    assert "cudaGraphLaunch" in {event.key for event in profile.key_averages()}

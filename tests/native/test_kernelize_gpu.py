# SPDX-License-Identifier: Apache-2.0
"""A model on the GPU runs a kernel that our builder built for CUDA, here or on another machine.

``KERNFORGE_LLAMA_PARTS`` names the project, as ``llama_parts.write`` writes it, with its build::

    python tests/native/llama_parts.py DIRECTORY cuda && kernforge build DIRECTORY

The test takes nothing from a conftest, so ``--noconftest`` runs it where the builder's half is not
installed.
"""

import os

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.torch,
    # Torch's own, of its compiler and its profiler.
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
    pytest.mark.filterwarnings("ignore:Warning. Profiler clears events:UserWarning"),
]
torch = pytest.importorskip("torch")

from native import llama_model  # noqa: E402 - skipped without torch
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402

from kernforge import (  # noqa: E402
    CUDAProperties,
    Device,
    LocalLayerRepository,
    Mode,
    kernelize,
    kernelize_report,
    unkernelize,
    use_kernel_mapping,
)

PROJECT = os.environ.get("KERNFORGE_LLAMA_PARTS")


@pytest.fixture(autouse=True)
def mapped():
    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")
    if PROJECT is None:
        pytest.skip("KERNFORGE_LLAMA_PARTS names no build")
    hopper, older = (Device("cuda", CUDAProperties(*limits)) for limits in ((90, 90), (0, 89)))
    mapping = {
        name: {
            hopper: LocalLayerRepository(PROJECT, layer_name=name),
            older: LocalLayerRepository("/nowhere", layer_name=name),
            "cpu": LocalLayerRepository("/nowhere", layer_name=name),
        }
        for name in ("RMSNorm", "SiluAndMul")
    }
    with use_kernel_mapping(mapping, inherit_mapping=False):
        yield


@pytest.fixture
def model():
    return llama_model.llama(width=256, heads=4).cuda()


@pytest.fixture
def x():
    return torch.randn(2, 33, 256, device="cuda", generator=torch.Generator("cuda").manual_seed(0))


def ops_of(call):
    activities = [torch.profiler.ProfilerActivity.CPU, torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        call()
        torch.cuda.synchronize()
    return {event.key.rpartition("::")[2] for event in profile.key_averages()}


@torch.no_grad()
def test_a_llama_runs_the_kernel_on_the_gpu_and_gives_the_same(model, x):
    expected = model(x)
    kernelize(model, mode=Mode.INFERENCE)
    report = kernelize_report(model)
    assert len(report.replaced) == 7
    assert "cu" in report.replaced[0].source.variant
    torch.testing.assert_close(model(x), expected, rtol=1e-4, atol=1e-4)
    ran = ops_of(lambda: model(x))
    assert {"rms_norm", "silu_and_mul"} <= ran
    assert any("rms_norm_kernel" in name for name in ran)
    unkernelize(model)
    torch.testing.assert_close(model(x), expected, rtol=0, atol=0)


@torch.no_grad()
def test_compiled_it_is_one_graph_with_the_kernel_in_it(model, x):
    expected = model(x)
    kernelize(model, mode=Mode.INFERENCE | Mode.TORCH_COMPILE)
    counter = CompileCounterWithBackend("inductor")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    torch.testing.assert_close(compiled(x), expected, rtol=1e-3, atol=1e-3)
    compiled(x)
    assert counter.frame_count == 1
    assert any("rms_norm_kernel" in name for name in ops_of(lambda: compiled(x)))


def gradients(model, call, x):
    model.zero_grad()
    call(x).square().mean().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_training_gives_the_same_gradients(model, x):
    expected = gradients(model, model, x)
    kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE)
    assert {layer.layer_name for layer in kernelize_report(model).replaced} == {"SiluAndMul"}
    for call in (model, torch.compile(model, fullgraph=True)):
        torch.testing.assert_close(gradients(model, call, x), expected, rtol=1e-3, atol=1e-4)
    assert "silu_and_mul_backward" in ops_of(lambda: gradients(model, model, x))

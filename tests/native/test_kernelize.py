# SPDX-License-Identifier: Apache-2.0
"""Models with a built kernel: eager and compiled, forward and backward."""

import copy
import io
import json
import os
import pickle
import re
import sys
from pathlib import Path

import pytest
from support import trees

pytestmark = [
    pytest.mark.native,
    pytest.mark.torch,
    # Torch's own, when it imports its compiler.
    pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning"),
]
torch = pytest.importorskip("torch")

from native import llama_model, llama_parts  # noqa: E402 - skipped without torch
from torch._dynamo.testing import CompileCounterWithBackend  # noqa: E402
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

import kernforge  # noqa: E402
from kernforge import (  # noqa: E402
    FuncRepository,
    LayerRepository,
    LockedFuncRepository,
    LockedLayerRepository,
    Mode,
    kernelize,
    kernelize_report,
    kernelized,
    unkernelize,
    use_kernel_mapping,
)
from kernforge.errors import RegistryError, RequestError  # noqa: E402

REPO = "me/llama-parts"
COMPILED = Mode.INFERENCE | Mode.TORCH_COMPILE


@pytest.fixture(scope="module")
def registry(kernforge_cli, tmp_path_factory):
    """A registry with the kernel, built and published as a user does."""
    root = tmp_path_factory.mktemp("llama")
    project = trees.write(root / "project", llama_parts.FILES)
    kernforge_cli("build", project)
    kernforge_cli("publish", project, "--registry", root / "registry", "--repo-id", REPO)
    return root / "registry"


@pytest.fixture
def mapped(registry):
    kernel = {"repo_id": REPO, "version": 1, "registry": str(registry)}
    layers = {
        name: {"cpu": LayerRepository(layer_name=name, **kernel)}
        for name in ("RMSNorm", "SiluAndMul")
    }
    function = {"swiglu": {"cpu": FuncRepository(func_name="silu_and_mul", **kernel)}}
    with use_kernel_mapping({**layers, **function}, inherit_mapping=False):
        yield


class Ran(TorchDispatchMode):
    """Records the kernel's ops."""

    def __init__(self):
        super().__init__()
        self.ops = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        namespace, _, name = func._schema.name.partition("::")
        if namespace.startswith("_llama_parts_"):
            self.ops.append(name)
        return func(*args, **(kwargs or {}))


def ops_of(model, *inputs):
    with Ran() as ran:
        model(*inputs)
    return ran.ops


X = torch.linspace(-2, 2, 2 * 5 * 32).reshape(2, 5, 32)


@pytest.mark.road
def test_a_llama_runs_the_kernel(mapped, registry):
    model = llama_model.llama()
    expected, keys = model(X), model.state_dict().keys()
    assert kernelize(model, mode=Mode.INFERENCE) is model
    torch.testing.assert_close(model(X), expected)
    assert ops_of(model, X) == 2 * ["rms_norm", "rms_norm", "silu_and_mul"] + ["rms_norm"]
    assert model.state_dict().keys() == keys

    report = kernelize_report(model)
    assert [layer.path for layer in report.replaced] == [
        "0.norm1", "0.norm2", "0.mlp.act", "1.norm1", "1.norm2", "1.mlp.act", "2",
    ]  # fmt: skip
    (source,) = {layer.source for layer in report.layers}
    assert (source.repo_id, source.variant[:5]) == (REPO, "torch")
    assert source.commit == (registry / "kernels--me--llama-parts/refs/v1").read_text()
    assert f"{REPO}@{source.commit[:7]} {source.variant}" in str(report)
    assert "*.norm1 (2)" in str(report)
    assert str(report).endswith("7 of 7 layers run a kernel")


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_compiled_model_is_one_graph_with_the_kernel(mapped, backend):
    model = llama_model.llama()
    expected = model(X)
    kernelize(model, mode=COMPILED)
    counter = CompileCounterWithBackend(backend)
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(X), expected)
        assert counter.frame_count == 1
        called = [str(node.target) for node in counter.graphs[0].graph.nodes]
        assert sum("llama_parts" in target for target in called) == 7
        # A graph with the kernel is not run without it.
        unkernelize(model)
        torch.testing.assert_close(compiled(X), expected)
    assert counter.frame_count == 2


def gradients(model, call):
    model.zero_grad()
    call(X).square().sum().backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_training_runs_only_kernels_with_a_backward(mapped):
    model = llama_model.llama()
    expected = gradients(model, model)
    kernelize(model, mode=Mode.TRAINING | Mode.TORCH_COMPILE)
    report = kernelize_report(model)
    assert {layer.layer_name for layer in report.replaced} == {"SiluAndMul"}
    assert {layer.reason for layer in report.kept} == {
        f"`{REPO}` (version 1), layer `RMSNorm` does not support backward"
    }
    torch.testing.assert_close(gradients(model, model), expected)
    with Ran() as ran:
        gradients(model, model)
    assert ran.ops == 2 * ["silu_and_mul"] + 2 * ["silu_and_mul_backward"]
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(gradients(model, compiled), expected)


def test_a_function_is_replaced_for_its_callers(mapped):
    model = llama_model.FunctionMLP(32)
    expected = model(X)
    kernelize(model, mode=COMPILED)
    assert ops_of(model, X) == ["silu_and_mul"]
    assert kernelize_report(model).layers[0].path == "swiglu"
    torch.testing.assert_close(model(X), expected)
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(X), expected)
    # A copy of the model calls the same function; so does one that went through a file.
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):  # noqa: S301 - ours
        assert ops_of(twin, X) == ["silu_and_mul"]
    unkernelize(model)
    assert ops_of(model, X) == []


def test_a_deep_copy_runs_the_kernel_on_its_own_weights(mapped):
    model = kernelize(llama_model.llama(), mode=Mode.INFERENCE)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        twin[-1].weight.zero_()
    assert len(ops_of(twin, X)) == 7
    assert not twin(X).any()
    assert model(X).any()
    assert kernelize_report(twin) == kernelize_report(model)
    assert ops_of(unkernelize(twin), X) == []
    assert len(ops_of(model, X)) == 7


def test_a_pickled_model_has_no_kernel(mapped, forked, tmp_path):
    model = kernelize(llama_model.MLP(32), mode=Mode.INFERENCE)
    buffer = io.BytesIO()
    torch.save(model, buffer)
    buffer.seek(0)
    # In a process that has no kernel, nor kernforge's leave to load one.
    (tmp_path / "model.pt").write_bytes(buffer.getvalue())
    program = (
        "import sys, torch; m = torch.load(sys.argv[1], weights_only=False)\n"
        "m(torch.ones(1, 32)); print(any('llama_parts_cpu' in n for n in sys.modules))"
    )
    path = os.pathsep.join(sys.path)
    done = forked("-c", program, tmp_path / "model.pt", PYTHONPATH=path)
    assert done.stdout.strip() == "False"
    twin = torch.load(buffer, weights_only=False)
    assert ops_of(twin, X) == []
    assert kernelize_report(twin).layers[0].reason == "not kernelized"
    assert ops_of(kernelize(twin, mode=Mode.INFERENCE), X) == ["silu_and_mul"]
    assert ops_of(unkernelize(twin), X) == []


@pytest.mark.parametrize("strict", [False, True])
def test_an_exported_program_has_the_kernel(mapped, strict):
    model = llama_model.llama()
    expected = model(X)
    kernelize(model, mode=COMPILED)
    program = torch.export.export(model, (X,), strict=strict)
    called = [str(node.target) for node in program.graph.nodes]
    assert sum("llama_parts" in target for target in called) == 7
    torch.testing.assert_close(program.module()(X), expected)


def test_a_locked_layer_is_of_the_locked_commit(registry, tmp_path, monkeypatch):
    commit = (registry / "kernels--me--llama-parts/refs/v1").read_text()
    entry = {"dependency": {"repo-id": REPO, "version": 1}, "lock": {"commit": commit}}
    lock = tmp_path / "kernels.lock"
    lock.write_text(json.dumps([entry]))
    where = {"lockfile": lock, "registry": str(registry)}
    mapping = {
        "SiluAndMul": {"cpu": LockedLayerRepository(REPO, layer_name="SiluAndMul", **where)},
        "swiglu": {"cpu": LockedFuncRepository(REPO, func_name="silu_and_mul", **where)},
    }
    lock.unlink()  # it was read
    for model in (llama_model.MLP(32), llama_model.FunctionMLP(32)):
        with use_kernel_mapping(mapping), kernelized(model, mode=Mode.INFERENCE):
            assert ops_of(model, X) == ["silu_and_mul"]
            (layer,) = kernelize_report(model).layers
            assert layer.source.commit == commit

    lock.write_text(json.dumps([{**entry, "lock": {"commit": "0" * 40}}]))
    other = LockedLayerRepository(REPO, layer_name="SiluAndMul", **where)
    assert other != mapping["SiluAndMul"]["cpu"]
    with use_kernel_mapping({"SiluAndMul": {"cpu": other}}), pytest.raises(RegistryError):
        kernelize(llama_model.MLP(32), mode=Mode.INFERENCE)
    with pytest.raises(RequestError, match="me/other is not locked"):
        LockedLayerRepository("me/other", layer_name="SiluAndMul", **where)


GUIDE = Path(__file__).parents[2] / "docs/how-to/user/kernelize-a-model.md"


def test_the_guides_code_runs(registry, monkeypatch, capsys):
    monkeypatch.setenv("KERNFORGE_REGISTRY", str(registry))
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    with use_kernel_mapping({}, inherit_mapping=False):
        exec(compile(code, GUIDE.name, "exec"), {"__name__": "guide"})  # noqa: S102 - our page
    assert "1 of 1 layers run a kernel" in capsys.readouterr().out


THEIRS = """
import json, sys, torch
torch.version.cuda = None  # a layer names no backend: a torch for CUDA takes CUDA variants alone
from kernels import LayerRepository, Mode, kernelize, use_kernel_mapping
from native import llama_model
names = ("RMSNorm", "SiluAndMul")
mapping = {n: {"cpu": LayerRepository(sys.argv[1], layer_name=n, version=1)} for n in names}
model = llama_model.llama()
with use_kernel_mapping(mapping, inherit_mapping=False):
    kernelize(model, mode=Mode.INFERENCE)
x = torch.linspace(-2, 2, 2 * 5 * 32).reshape(2, 5, 32)
modules = (model[0].norm1, model[0].mlp.act)
print(json.dumps([model(x).tolist(), [m.forward.__func__.__module__ for m in modules]]))
"""


def test_the_hubs_client_kernelizes_alike(mapped, registry, forked):
    pytest.importorskip("kernels")
    env = {"HF_HUB_OFFLINE": "1", "KERNELS_CACHE": registry, "HF_HOME": registry.parent / "hf-home"}
    done = forked("-c", THEIRS, REPO, PYTHONPATH=os.pathsep.join(sys.path), **env)
    outputs, modules = json.loads(done.stdout.splitlines()[-1])
    assert all(name.startswith("_llama_parts_") for name in modules)
    model = kernelize(llama_model.llama(), mode=Mode.INFERENCE)
    torch.testing.assert_close(model(X), torch.tensor(outputs), rtol=0, atol=0)
    assert kernforge.get_loaded_kernels()[-1].metadata.id in modules[0]

# SPDX-License-Identifier: Apache-2.0
"""Unmodified ``kernels`` and transformers load through ``kernforge serve``."""

import json
import os
import sys
from pathlib import Path

import pytest
from support.served import served

from kernforge.publish.api import publish
from kernforge.registry import open_registry

pytestmark = pytest.mark.torch
pytest.importorskip("torch")
pytest.importorskip("kernels")
pytest.importorskip("granian")

ROOT = Path(__file__).parents[2]
ATTENTION = """
import torch

calls = []

def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False):
    calls.append(tuple(q.shape))
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    attend = torch.nn.functional.scaled_dot_product_attention
    return attend(q, k, v, is_causal=causal, scale=softmax_scale).transpose(1, 2)

def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k,
                           dropout_p=0.0, softmax_scale=None, causal=False):
    raise NotImplementedError
"""
NORM = """
import torch

class RMSNorm(torch.nn.Module):
    can_torch_compile = has_backward = True
    weight: torch.Tensor
    variance_epsilon: float

    def forward(self, x):
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return 2 * self.weight * x * scale
"""
KERNELS = {
    "attention": {"__init__.py": ATTENTION, "table.bin": "x" * 500_000},
    "norm": {"__init__.py": "from . import layers\n", "layers.py": NORM},
}
USE = """
import json
import torch
from kernels import LayerRepository, get_kernel, register_kernel_mapping
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=50,
                     num_attention_heads=2, num_key_value_heads=2)
torch.manual_seed(0)
model, tokens = LlamaForCausalLM(config).eval(), torch.arange(10)[None]
plain = model(tokens).logits
model.set_attn_implementation("acme/attention")
torch.testing.assert_close(model(tokens).logits, plain)
attention = get_kernel("acme/attention", version=1)
norm = LayerRepository(repo_id="acme/norm", layer_name="RMSNorm", version=1)
register_kernel_mapping({"RMSNorm": {"cpu": norm}})
before = model.model.norm(torch.ones(1, 32))
model.set_use_kernels(True)
after = model.model.norm(torch.ones(1, 32))
print(json.dumps([len(attention.calls), (after / before).mean().item()]))
"""


@pytest.fixture
def location(request):
    """A registry in a bucket, or an OCI registry."""
    kind = getattr(request, "param", "bucket")
    fixture = request.getfixturevalue(kind)
    return fixture if kind == "bucket" else fixture()


@pytest.fixture
def server(location, tmp_path, write_variant):
    """A server of a registry with two kernels."""
    for name, sources in KERNELS.items():
        build = tmp_path / "build" / name
        write_variant(
            build,
            name=name,
            unique=f"{len(name):07}",
            files=sources,
            variant="torch-universal",  # torch may be built for CUDA
        )
        publish(build, open_registry(location), f"acme/{name}", card=f"# {name}\n")
    with served(location, tmp_path / "log", "--trusted", "acme") as server:
        yield server


@pytest.fixture
def run(server, tmp_path, forked):
    """Run a program in a fresh process that knows the server alone."""

    def start(*argv, **environ):
        own = {n: v for n, v in os.environ.items() if not n.startswith(("HF_", "KERN", "AWS_"))}
        places = {"HF_HOME": tmp_path / "hf", "KERNFORGE_HOME": tmp_path / "kernforge"}
        environ = {"PYTHONPATH": ROOT / "src", "HF_ENDPOINT": server.url, **places, **environ}
        return json.loads(forked(*argv, env=own, **environ).stdout.splitlines()[-1])

    return start


# Of a version that transformers accepts; the code is that of the installed client.
_METADATA = "Metadata-Version: 2.1\nName: kernels\nVersion: 0.18.2\n"


def test_transformers_loads_attention_and_a_layer_from_a_bucket(server, run, tmp_path):
    pytest.importorskip("transformers")
    claimed = tmp_path / "claimed" / "kernels-0.18.2.dist-info"
    claimed.mkdir(parents=True)
    (claimed / "METADATA").write_text(_METADATA)
    path = f"{claimed.parent}{os.pathsep}{ROOT / 'src'}"
    assert run("-c", USE, PYTHONPATH=path) == [2, 2.0]
    assert any("framework/transformers" in line["agent"] for line in server.lines())
    moved = [line["path"] for line in server.lines() if line["status"] == 302]
    assert [path.rpartition("/")[2] for path in moved] == ["table.bin"], "from the bucket itself"


def test_transformers_loads_with_kernforge_in_the_place_of_kernels(server, run, tmp_path):
    pytest.importorskip("transformers")
    program = tmp_path / "use.py"
    program.write_text(USE)
    assert run("-m", "kernforge", "run", "--as-kernels", "--", sys.executable, program) == [2, 2.0]


GET = """
import json, kernels
kernel = kernels.get_kernel("acme/attention", version=1)
has = kernels.has_kernel("acme/attention", version=1)
print(json.dumps([kernel.flash_attn_func.__name__, has]))
"""


@pytest.mark.road
@pytest.mark.parametrize("location", ["bucket", "oci_registry"], indirect=True)
def test_kernels_loads_from_another_registry(server, run):
    assert run("-c", GET) == ["flash_attn_func", True]


GREY = """
import json, kernels, torch
kernel = kernels.get_kernel("acme/img2gray", version=1, backend="cpu")
print(json.dumps(kernel.img2gray(torch.full((1, 1, 3), 200, dtype=torch.uint8)).item()))
"""


@pytest.mark.native
def test_kernels_loads_a_compiled_variant(server, location, run, tmp_path, kernforge_cli):
    built = tmp_path / "img2gray"
    project = ROOT / "kernels" / "img2gray"
    kernforge_cli("build", project, "--build-dir", built, "--variant", "*stable*-cpu-*")
    publish(built, open_registry(location), "acme/img2gray", card="# img2gray\n")
    assert run("-c", GREY) == 200
    assert any(line["path"].endswith(".so") for line in server.lines())

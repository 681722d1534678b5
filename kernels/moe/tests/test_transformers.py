# SPDX-License-Identifier: Apache-2.0
"""Models of transformers whose experts are ``MoEMLP``; skipped without transformers."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

import kernforge

transformers = pytest.importorskip("transformers", minversion="5.0")
# With the client installed they import it, and above this directory pytest has a module of its
# name.
modeling_mixtral, modeling_qwen3_moe = (
    pytest.importorskip(f"transformers.models.{name}.modeling_{name}", exc_type=ImportError)
    for name in ("mixtral", "qwen3_moe")
)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    r"ignore:\s*Online softmax is disabled:UserWarning",
    "ignore:TensorFloat32 tensor cores:UserWarning",
)
SIZES = {
    "vocab_size": 96,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
}


def mixtral():
    config = transformers.MixtralConfig(
        **SIZES, intermediate_size=96, num_local_experts=4, num_experts_per_tok=2
    )
    return modeling_mixtral.MixtralExperts, transformers.MixtralForCausalLM(config)


def qwen3_moe():
    config = transformers.Qwen3MoeConfig(
        **SIZES,
        head_dim=16,
        intermediate_size=96,
        moe_intermediate_size=40,
        num_experts=16,
        num_experts_per_tok=4,
        norm_topk_prob=True,
        decoder_sparse_step=1,
    )
    return modeling_qwen3_moe.Qwen3MoeExperts, transformers.Qwen3MoeForCausalLM(config)


@pytest.fixture(params=[mixtral, qwen3_moe], ids=lambda make: make.__name__)
def models(request, device):
    """A model with random weights as it is, and one that is told to take the layer."""
    torch.manual_seed(0)
    experts, model = request.param()
    for module in model.modules():
        if type(module) is experts:  # at first of 0.02: what they add would be lost in the rest
            module.gate_up_proj.data *= 8
            module.down_proj.data *= 8
    plain = model.to(device, torch.bfloat16 if device == "cuda" else torch.float32).eval()
    named = copy.deepcopy(plain)

    class Named(experts):
        pass

    kernforge.replace_kernel_forward_from_hub(Named, "MoEMLP")
    for module in named.modules():
        if type(module) is experts:
            module.__class__ = Named
    return plain, named


@pytest.fixture
def tokens(device):
    return torch.randint(96, (2, 33), generator=torch.Generator().manual_seed(1)).to(device)


@pytest.fixture
def replaced(kernel, device):
    """A function that puts the tested build's layer into a model."""
    builds = Path(kernel.__file__).parents[1]
    repository = kernforge.LocalLayerRepository(builds, layer_name="MoEMLP")

    def replace(model, mode):
        with kernforge.use_kernel_mapping({"MoEMLP": {device: repository}}, inherit_mapping=False):
            kernforge.kernelize(model, mode=mode, device=device)
        assert len(kernforge.kernelize_report(model).replaced) == 2
        return model

    return replace


def whole(got, want):
    """The distance of the whole."""
    return ((got.float() - want.float()).norm() / want.float().norm()).item()


def off(got, want):
    """Of logits in bfloat16 that of the middle token: of two experts that are nearly equal a token
    may get the other one where the layer before rounds otherwise."""
    if not got.is_cuda:
        return whole(got, want)
    got, want = got.float().flatten(0, -2), want.float().flatten(0, -2)
    return ((got - want).norm(dim=1) / want.norm(dim=1)).median().item()


NEAR = {torch.float32: 1e-5, torch.bfloat16: 6e-2}


@torch.no_grad()
def test_the_logits_are_the_same(models, tokens, replaced):
    plain, named = models
    model = replaced(named, kernforge.Mode.INFERENCE)
    want = plain(tokens).logits
    assert off(model(tokens).logits, want) <= NEAR[want.dtype]


@torch.no_grad()
def test_the_logits_are_the_same_when_it_is_compiled(models, tokens, replaced):
    plain, named = models
    model = replaced(named, kernforge.Mode.INFERENCE | kernforge.Mode.TORCH_COMPILE)
    compiled = torch.compile(lambda ids: model(ids, use_cache=False).logits, fullgraph=True)
    want = plain(tokens).logits
    assert off(compiled(tokens), want) <= NEAR[want.dtype]


def test_the_gradients_are_the_same(models, tokens, replaced):
    plain, named = models
    model = replaced(named, kernforge.Mode.TRAINING)
    for each in (plain, model):
        each(tokens).logits.float().square().mean().backward()
    wanted = dict(plain.named_parameters())
    for name, parameter in model.named_parameters():
        assert whole(parameter.grad, wanted[name].grad) <= 10 * NEAR[plain.dtype], name

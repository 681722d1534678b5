# SPDX-License-Identifier: Apache-2.0
"""An application of transformers or diffusers with ``kernels``, started by ``applications.py``.

It imports nothing of kernforge: whoever answers ``import kernels`` is used. Models have random
weights.

    python scripts/applications_program.py transformers|diffusers DEVICE DTYPE OUT.json
"""

# The packages lie in a directory of their own, which linters and type checkers do not know.
# mypy: ignore-errors
# ruff: noqa: ANN001, ANN002, ANN003, ANN201, ANN202, PLC0415

import importlib.metadata
import json
import sys
import tempfile
import warnings
from pathlib import Path

import torch

NORM, EXPERTS, ATTENTION = "kernforge/layer-norm", "kernforge/moe", "kernforge/attention"
# With kernels a model may lose as much as it loses without, and a half more.
FACTOR = 1.5


def configurations():
    """Small models of four families."""
    from transformers import LlamaConfig, MixtralConfig, Qwen3Config, Qwen3MoeConfig

    size = {
        "vocab_size": 512,
        "hidden_size": 256,
        "intermediate_size": 512,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
    }
    moe = {"moe_intermediate_size": 256, "num_experts": 8, "num_experts_per_tok": 2}
    return {
        "Llama": LlamaConfig(**size),
        "Mixtral": MixtralConfig(**size, num_local_experts=8, num_experts_per_tok=2),
        "Qwen3": Qwen3Config(**size, head_dim=64),
        "Qwen3-MoE": Qwen3MoeConfig(**size, **moe, head_dim=64),
    }


def replaced(model):
    """Modules by class whose forward is a kernel's."""
    found = {}
    for module in model.modules():
        forward = vars(module).get("forward")
        owner = getattr(forward, "__module__", "") or ""
        if forward is not None and not owner.startswith(("transformers", "diffusers", "torch")):
            name = type(module).__name__
            found[name] = found.get(name, 0) + 1
    return found


def error(got, wanted):
    """The norm of the difference in shares of the expected norm."""
    return ((got.double() - wanted.double()).norm() / wanted.double().norm()).item()


def result(model, what, count, lost, plain):
    """A row: the kernels' calls or modules by name, and the errors with and without kernels."""
    return {
        "model": model,
        "what": what,
        "replaced": count,
        "error": lost,
        "error_without": plain,
        "passed": any(count.values()) and lost <= FACTOR * plain + 1e-6,
    }


def mapping(device, *, experts):
    """The layers that are replaced on a device."""
    from kernels import LayerRepository

    def layer(repo_id, name):
        return {device: LayerRepository(repo_id=repo_id, layer_name=name, version=1)}

    found = {"RMSNorm": layer(NORM, "RMSNorm")}
    if experts:
        found["Experts"] = layer(EXPERTS, "MoEMLP")
    return found


@torch.no_grad()
def family(name, config, device, dtype):
    """Run a model with ``use_kernels=True``: with kernelized experts, compiled, other attention."""
    from transformers import AutoModelForCausalLM
    from transformers.integrations import hub_kernels

    import kernels

    # transformers registers kernels of the hub when it is asked for kernels: here others are
    # registered.
    hub_kernels.register_kernel_mapping_transformers = lambda *_arguments: None
    kernels.register_kernel_mapping(mapping(device, experts=True), inherit_mapping=False)
    attention = kernels.get_kernel(ATTENTION, version=1)
    torch.manual_seed(0)
    exact = AutoModelForCausalLM.from_config(config, dtype=torch.float32).to(device).eval()
    for key, parameter in exact.named_parameters():
        if key.endswith("mlp.gate.weight"):  # Of random weights, experts are nearly equally good.
            parameter.mul_(32)
    ids = torch.randint(0, config.vocab_size, (2, 48), device=device)
    wanted = exact(ids).logits
    own = [module for module in exact.modules() if type(module).__name__.endswith("Experts")]
    rows = []
    with tempfile.TemporaryDirectory() as directory:
        exact.save_pretrained(directory)

        def load(**options):
            model = AutoModelForCausalLM.from_pretrained(directory, dtype=dtype, **options)
            return model.to(device).eval()

        plain = error(load()(ids).logits, wanted)

        def row(what, run, count):
            rows.append(result(name, what, count, error(run(ids).logits, wanted), plain))

        model = load(use_kernels=True)
        model.set_use_kernels(True)
        row("use_kernels=True", model, replaced(model))
        if own:
            kernels.replace_kernel_forward_from_hub(type(own[0]), "Experts")
            mixture = load()
            kernels.kernelize(mixture, mode=kernels.Mode.INFERENCE, device=kernels.Device(device))
            row("kernelize, with experts", mixture, replaced(mixture))
        if device == "cuda":
            row("torch.compile", torch.compile(model, fullgraph=True), replaced(model))
        if dtype is not torch.float32:  # transformers takes such a kernel for half types alone
            hooked = load()
            hooked.set_attn_implementation(ATTENTION, allow_all_kernels=True)
            before = attention.calls()
            hooked(ids)
            row("attn_implementation", hooked, {"attention": attention.calls() - before})
    return rows


def transformers_rows(device, dtype):
    """Every family."""
    import transformers

    transformers.logging.set_verbosity_error()
    found = configurations().items()
    return [row for name, config in found for row in family(name, config, device, dtype)]


@torch.no_grad()
def diffusers_rows(device, dtype):
    """A transformer of a pipeline, with the attention that a kernel has."""
    from diffusers import FluxTransformer2DModel

    import kernels

    torch.manual_seed(0)
    model = FluxTransformer2DModel(
        in_channels=16,
        num_layers=2,
        num_single_layers=2,
        attention_head_dim=32,
        num_attention_heads=4,
        joint_attention_dim=64,
        pooled_projection_dim=64,
        axes_dims_rope=(8, 12, 12),
    )
    model = model.to(device).eval()

    def run():
        generator = torch.Generator().manual_seed(1)

        def draw(*shape):
            return torch.randn(*shape, generator=generator).to(device, model.dtype)

        return model(
            hidden_states=draw(1, 64, 16),
            encoder_hidden_states=draw(1, 24, 64),
            pooled_projections=draw(1, 64),
            timestep=torch.tensor([0.5], device=device, dtype=model.dtype),
            img_ids=torch.zeros(64, 3, device=device),
            txt_ids=torch.zeros(24, 3, device=device),
        ).sample

    wanted = run()
    model.to(dtype)
    plain = error(run(), wanted)
    attention = kernels.get_kernel("kernels-community/flash-attn2", version=3)
    before = attention.calls()
    model.set_attention_backend("flash_hub")
    lost = error(run(), wanted)
    count = {"attention": attention.calls() - before}
    return [result("Flux", 'set_attention_backend("flash_hub")', count, lost, plain)]


def main():
    """Run the models, and write the results."""
    library, device, dtype, out = sys.argv[1:]
    warnings.simplefilter("ignore")
    import kernels

    rows = {"transformers": transformers_rows, "diffusers": diffusers_rows}[library](
        device, getattr(torch, dtype)
    )
    document = {
        "library": library,
        "version": importlib.metadata.version(library),
        "kernels": kernels.__version__,
        "answered_by": "kernforge" if "kernforge" in sys.modules else "kernels",
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU",
        "dtype": dtype,
        "torch": torch.__version__,
        "rows": rows,
    }
    Path(out).write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``."""

import functools
import importlib.util

import torch


def kernel(module, *given):
    *given, w1_scale, w2_scale = given if len(given) > 5 else (*given, None, None)
    return module.moe(*given, w1_scale=w1_scale, w2_scale=w2_scale)


def _wide(weights, scale, dtype):
    """Weights of 8 bits times the factors of their blocks."""
    _, rows, columns = weights.shape
    factors = scale.repeat_interleave(128, 1)[:, :rows].repeat_interleave(128, 2)[:, :, :columns]
    return (weights.to(dtype) * factors).to(dtype)


def _routed(logits, top):
    weights, ids = logits.float().softmax(1).topk(top, dim=1)
    return weights / weights.sum(1, keepdim=True), ids


def eager(x, logits, w1, w2, top, *factors):
    """As the blocks of transformers do it: one expert after the other."""
    if factors:
        w1, w2 = (_wide(w, scale, x.dtype) for w, scale in zip((w1, w2), factors, strict=True))
    weights, ids = _routed(logits, top)
    y = torch.zeros_like(x)
    for e in range(len(w1)):
        token, place = torch.where(ids == e)
        gate, up = torch.nn.functional.linear(x[token], w1[e]).chunk(2, 1)
        out = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w2[e])
        y.index_add_(0, token, (out * weights[token, place, None]).to(y.dtype))
    return y


def _by_expert(logits, top, count):
    """The router, the assignments sorted by expert, where those of each expert end, and back."""
    weights, ids = _routed(logits, top)
    flat = ids.flatten()
    experts, order = flat.sort(stable=True)
    counts = torch.zeros(count, dtype=torch.int64, device=flat.device)
    counts.scatter_add_(0, flat, torch.ones_like(flat))
    return weights, experts, order, counts


def _weighted(out, order, weights):
    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=out.device))
    weighted = out[back].view(*weights.shape, -1) * weights.unsqueeze(2)
    return weighted.sum(1).to(out.dtype)


def _gated(both):
    gate, up = both.chunk(2, 1)
    return torch.nn.functional.silu(gate) * up


def _has(x, factors, package=None):
    """Whether a peer computes these: bfloat16 on a GPU without factors, where it is installed."""
    on = x.is_cuda and x.dtype is torch.bfloat16 and not factors
    return on and (package is None or importlib.util.find_spec(package) is not None)


def grouped(x, logits, w1, w2, top, *factors):
    """torch._grouped_mm, which reads on the GPU where the tokens of an expert end."""
    if not _has(x, factors):
        return NotImplemented
    weights, _, order, counts = _by_expert(logits, top, len(w1))
    ends = counts.cumsum(0).to(torch.int32)
    inner = _gated(torch._grouped_mm(x[order // top], w1.transpose(1, 2), offs=ends))
    return _weighted(torch._grouped_mm(inner, w2.transpose(1, 2), offs=ends), order, weights)


@functools.cache
def _compiled():
    return torch.compile(grouped)


def grouped_compiled(x, *given):
    return _compiled()(x, *given) if _has(x, given[4:]) else NotImplemented


def megablocks(x, logits, w1, w2, top, *factors):
    """kernels-community/megablocks: its grouped product of CUTLASS, for which the host waits."""
    if not _has(x, factors, "megablocks"):
        return NotImplemented
    from megablocks.grouped_gemm import backend  # noqa: PLC0415 - where it is installed

    weights, _, order, counts = _by_expert(logits, top, len(w1))
    counts = counts.cpu()
    inner = _gated(backend.gmm(x[order // top], w1, counts, trans_b=True))
    return _weighted(backend.gmm(inner, w2, counts, trans_b=True), order, weights)


def scattermoe(x, logits, w1, w2, top, *factors):
    """kernels-community/scattermoe, as its ScatterMoEGatedMLP has it."""
    if not _has(x, factors, "scattermoe"):
        return NotImplemented
    from scattermoe import parallel_linear  # noqa: PLC0415 - where it is installed

    weights, experts, order, counts = _by_expert(logits, top, len(w1))
    where = (experts, order, counts.cumsum(0))
    inner = _gated(parallel_linear(x, w1.transpose(1, 2), top, *where, grouped_out=True))
    gates = weights.to(x.dtype)
    return parallel_linear(inner, w2.transpose(1, 2), 1, *where, grouped_in=True, gates=gates)


def triton_kernels(x, logits, w1, w2, top, *factors):
    """kernels-community/triton-kernels; SwiGLU is torch's, as its own wants a row of the gate and a
    row of up in turns and adds 1."""
    if not _has(x, factors, "triton_kernels"):
        return NotImplemented
    from triton_kernels.matmul_ogs import matmul_ogs  # noqa: PLC0415 - where it is installed
    from triton_kernels.routing import routing  # noqa: PLC0415

    data, gather, scatter = routing(logits, top)
    both = matmul_ogs(x, w1.transpose(1, 2), None, data, gather_indx=gather)
    how = {"scatter_indx": scatter, "gammas": data.gate_scal}
    return matmul_ogs(_gated(both), w2.transpose(1, 2), None, data, **how)


PEERS = {
    "torch._grouped_mm": grouped,
    "torch._grouped_mm, torch.compile": grouped_compiled,
    "megablocks": megablocks,
    "scattermoe": scattermoe,
    "triton-kernels": triton_kernels,
}

# SPDX-License-Identifier: Apache-2.0
"""The specification, in whatever precision it is given."""

from __future__ import annotations

import itertools

import torch


def route(
    logits: torch.Tensor,
    top_k: int,
    *,
    scoring: str = "softmax",
    normalize: bool = True,
    bias: torch.Tensor | None = None,
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the experts of each token, in the precision of the logits.

    Args:
        logits: ``[tokens, experts]``.
        top_k: experts of a token.
        scoring: ``"softmax"`` or ``"sigmoid"``.
        normalize: divide the weights of a token by their sum.
        bias: ``[experts]``, added to choose by.
        scale: multiplies the weights.
        groups: of experts side by side.
        top_groups: groups that a token may choose in.
    """
    scores = logits.softmax(1) if scoring == "softmax" else logits.sigmoid()
    choices = scores.detach() if bias is None else scores.detach() + bias
    if groups > 1:
        grouped = choices.view(len(choices), groups, -1)
        best = grouped.topk(min(2, grouped.shape[2]), dim=2).values.sum(2)
        open_ = torch.zeros_like(best, dtype=torch.bool)
        open_.scatter_(1, best.topk(top_groups, dim=1).indices, True)
        choices = grouped.masked_fill(~open_.unsqueeze(2), -torch.inf).flatten(1)
    ids = choices.sort(dim=1, descending=True, stable=True).indices[:, :top_k]
    weights = scores.gather(1, ids)
    if normalize:
        weights = weights / weights.sum(1, keepdim=True)
    return weights * scale, ids


def widened(weights: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``[experts, n, k]``, each block of 128 by 128 times its factor."""
    out = weights.to(dtype).clone()
    for i, j in itertools.product(range(scale.shape[1]), range(scale.shape[2])):
        out[:, i * 128 : i * 128 + 128, j * 128 : j * 128 + 128] *= scale[:, i, j, None, None]
    return out


def experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
) -> torch.Tensor:
    """The weighted sum of the experts of each token; an id outside of the experts adds nothing."""
    y = torch.zeros_like(x)
    for e in range(len(w1)):
        token, place = (ids == e).nonzero(as_tuple=True)
        if len(token):
            gate, up = torch.nn.functional.linear(x[token], w1[e]).chunk(2, 1)
            out = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, w2[e])
            y = y.index_add(0, token, (out * weights[token, place, None]).to(y.dtype))
    return y


def moe(
    x: torch.Tensor,
    router_logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    top_k: int,
    **options: object,
) -> torch.Tensor:
    """Both, of matrices."""
    weights, ids = route(router_logits, top_k, **options)
    return experts(x, weights, ids, w1, w2)

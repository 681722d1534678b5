# SPDX-License-Identifier: Apache-2.0
"""The gradients, in torch's own operators.

What lies between the two products is computed again. Tokens are sorted by expert, so that the sum
over the tokens of an expert has one order. On compute capability 9.0, of bfloat16, the products are
``torch._grouped_mm``, which reads where an expert ends on the GPU, and a compiler sees every
operator, so that it fuses what lies between them; everywhere else a loop over the experts, for which
the host waits once, behind one operator.
"""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix


def of_route(
    grad: torch.Tensor,
    logits: torch.Tensor,
    ids: torch.Tensor,
    *,
    sigmoid: bool,
    normalize: bool,
    scale: float,
) -> torch.Tensor:
    """The gradient of ``route`` in its logits: of the chosen scores, whose choice is a constant."""
    wide = grad.dtype
    at = ids.long()
    if sigmoid:
        scores = logits.to(wide).gather(1, at).sigmoid()
    else:
        scores = logits.to(wide).softmax(1).gather(1, at)
    grad = grad * scale
    if normalize:
        total = scores.sum(1, keepdim=True) + (1e-20 if sigmoid else 0.0)
        grad = (grad - (grad * scores).sum(1, keepdim=True) / total) / total
    if sigmoid:
        slope = grad * scores * (1 - scores)
        return torch.zeros_like(logits, dtype=wide).scatter_add(1, at, slope).to(logits.dtype)
    weighted = grad * scores
    all_scores = logits.to(wide).softmax(1)
    slope = -all_scores * weighted.sum(1, keepdim=True)
    return slope.scatter_add(1, at, weighted).to(logits.dtype)


def widened(weights: torch.Tensor, scale: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """``[experts, n, k]`` times the factors of blocks of 128 by 128, in another dtype."""
    _, rows, columns = weights.shape
    factors = scale.repeat_interleave(128, 1)[:, :rows].repeat_interleave(128, 2)[:, :, :columns]
    return (weights.to(scale.dtype) * factors).to(dtype)


@torch.compiler.assume_constant_result  # what a compiler would put into its graph
def _is_hopper(device: torch.device) -> bool:
    return torch.cuda.get_device_capability(device) == (9, 0)


def _grouped(x: torch.Tensor, inner: int) -> bool:
    """Whether ``torch._grouped_mm`` multiplies these without waiting for the host."""
    return (
        x.is_cuda
        and x.dtype is torch.bfloat16
        and x.shape[1] % 8 == inner % 8 == 0
        and hasattr(torch, "_grouped_mm")
        and _is_hopper(x.device)
    )


class _Products:
    """Matrices of sorted rows times those of their experts, and sums over an expert's rows."""

    def __init__(self, counts: torch.Tensor, *, grouped: bool) -> None:
        self.ends = counts.cumsum(0).to(torch.int32) if grouped else None
        self.counts = [] if grouped else counts.tolist()

    def rows(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """``[rows, k]`` by ``[experts, k, n]``."""
        if self.ends is not None:
            return torch._grouped_mm(rows, weights, offs=self.ends)
        out = rows.new_zeros(rows.shape[0], weights.shape[2])
        for one, own, weight in zip(self._split(out), self._split(rows), weights, strict=True):
            torch.mm(own, weight, out=one)
        return out

    def sums(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """``[rows, m]`` and ``[rows, n]`` to ``[experts, m, n]``."""
        if self.ends is not None:
            return torch._grouped_mm(left.t(), right, offs=self.ends)
        each = zip(self._split(left), self._split(right), strict=True)
        return torch.stack([one.t() @ other for one, other in each])

    def _split(self, rows: torch.Tensor) -> list[torch.Tensor]:
        return list(rows[: sum(self.counts)].split(self.counts))


def of_experts(  # noqa: PLR0917 - as it is saved
    grad: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of ``experts`` in x, weights, w1 and w2."""
    if _grouped(x, w2.shape[2]):
        return _gradients(grad, x, weights, ids, w1, w2, grouped=True)
    return _looped(grad, x, weights, ids, w1, w2)


@torch.library.custom_op(add_op_namespace_prefix("experts_backward"), mutates_args=())
def _looped(  # noqa: PLR0917 - what the op takes
    grad: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return _gradients(grad, x, weights, ids, w1, w2, grouped=False)


def _gradients(  # noqa: PLR0917 - as it is saved
    grad: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    grouped: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    (tokens, top), count = ids.shape, w1.shape[0]
    inside = (ids >= 0) & (ids < count)
    flat = torch.where(inside, ids, count).flatten().long()  # those outside come last
    order = flat.argsort(stable=True)
    counts = torch.zeros(count + 1, dtype=torch.int64, device=x.device)
    counts = counts.scatter_add(0, flat, torch.ones_like(flat))[:count]
    products = _Products(counts, grouped=grouped)
    token = order // top
    rows, grads = x[token], grad[token]
    weight = torch.where(inside, weights, 0).flatten()[order].unsqueeze(1)
    valid = (flat[order] < count).unsqueeze(1)  # what no expert has is not written by the products

    wide = weights.dtype
    gate, up = products.rows(rows, w1.transpose(1, 2)).to(wide).chunk(2, 1)
    gate, up = torch.where(valid, gate, 0), torch.where(valid, up, 0)
    sigmoid = gate.sigmoid()
    silu = gate * sigmoid
    inner = (silu * up).to(x.dtype)
    # Of the output of an expert times its weight: the weight goes to the inner side, which is
    # narrower, and its gradient is there too: <grad, w2 h> = <w2^T grad, h>.
    plain = torch.where(valid, products.rows(grads, w2).to(wide), 0)
    dweight = (plain * inner.to(wide)).sum(1)
    dinner = plain * weight
    dgate = dinner * up * (sigmoid + silu * (1 - sigmoid))
    dboth = torch.cat((dgate, dinner * silu), 1).to(x.dtype)
    drows = torch.where(valid, products.rows(dboth, w1).to(wide), 0)
    dw1 = products.sums(dboth, rows)
    dw2 = products.sums(grads, (inner.to(wide) * weight).to(x.dtype))

    back = torch.empty_like(order).scatter_(0, order, torch.arange(len(order), device=x.device))
    dx = drows[back].view(tokens, top, -1).sum(1).to(x.dtype)
    return dx, dweight[back].view(tokens, top), dw1, dw2


@_looped.register_fake
def _looped_fake(  # noqa: PLR0917 - what the op takes
    grad: torch.Tensor,  # noqa: ARG001
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,  # noqa: ARG001
    w1: torch.Tensor,
    w2: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    return tuple(t.new_empty(t.shape) for t in (x, weights, w1, w2))

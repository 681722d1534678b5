# SPDX-License-Identifier: Apache-2.0
"""The gradients.

What lies between the two products is kept; of weights with factors it is computed again. Tokens are
sorted by expert, so that the sum over the tokens of an expert has one order: ``sort`` gives the row
of each assignment (a token and one of its experts), the assignment of each row (-1: none), and
where an expert ends, on a multiple of 8. On compute capability 9.0, of bfloat16, the products are
``torch._grouped_mm``, which reads where an expert ends on the GPU; everywhere else a loop over the
experts, for which the host waits once.
"""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

# Overloads, not packets: which one is meant need not be found out again at each call.
sort = ops.sort.default
_spread = ops.spread.default
_gate_backward = ops.gate_backward.default
_sum_rows = ops.sum_rows.default


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


def _grouped(x: torch.Tensor) -> bool:
    """Whether ``torch._grouped_mm`` multiplies these without waiting for the host."""
    return (
        x.is_cuda
        and x.dtype is torch.bfloat16
        and hasattr(torch, "_grouped_mm")
        and torch.cuda.get_device_capability(x.device) == (9, 0)
    )


class _Products:
    """Matrices of sorted rows times those of their experts, and sums over an expert's rows.

    Rows between an expert's last one and its end are zeros, or their products are not read.
    """

    def __init__(self, ends: torch.Tensor, like: torch.Tensor, sizes: tuple[int, ...]) -> None:
        whole = all(size % 8 == 0 for size in sizes)
        self.ends = ends if whole and _grouped(like) else None
        self.counts = [] if self.ends is not None else ends.diff(prepend=ends.new_zeros(1)).tolist()

    def rows(self, rows: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """``[rows, k]`` by ``[experts, k, n]``."""
        if self.ends is not None:
            return torch._grouped_mm(rows, weights, offs=self.ends)
        out = rows.new_empty(rows.shape[0], weights.shape[2])
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


@torch.library.custom_op(add_op_namespace_prefix("experts_backward"), mutates_args=())
def of_experts(  # noqa: PLR0917 - what the op takes
    grad: torch.Tensor,
    x: torch.Tensor,
    weights: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    both: torch.Tensor | None,
    positions: torch.Tensor,
    assignments: torch.Tensor,
    ends: torch.Tensor,
    of_w1: bool,  # noqa: FBT001
    of_w2: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The gradients of ``experts`` in x, weights, w1 and w2; empty for a frozen w1 or w2.

    ``both`` are gate and up by rows, or computed again; the three after it are those of ``sort``.
    """
    if 0 in {x.numel(), w2.numel()}:
        return tuple(torch.zeros_like(t) for t in (x, weights, w1, w2))
    products = _Products(ends, x, (x.shape[1], w2.shape[2]))
    rows, grads = _spread(x, grad, assignments, positions.shape[1])
    if both is None:
        both = products.rows(rows, w1.transpose(1, 2))
    # Of the output of an expert times its weight: the weight goes to the inner side, which is
    # narrower, and its gradient is there too: <grad, w2 h> = <w2^T grad, h>.
    plain = products.rows(grads, w2)
    dboth, inner, dweights = _gate_backward(both, plain, weights, assignments)
    dx, dweights = _sum_rows(products.rows(dboth, w1), dweights, positions)
    dw1 = products.sums(dboth, rows) if of_w1 else w1.new_empty(0)
    dw2 = products.sums(grads, inner) if of_w2 else w2.new_empty(0)
    return dx, dweights, dw1, dw2


@of_experts.register_fake
def _of_experts_fake(  # noqa: PLR0917 - what the op takes
    grad: torch.Tensor,  # noqa: ARG001
    x: torch.Tensor,
    weights: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    both: torch.Tensor | None,  # noqa: ARG001
    positions: torch.Tensor,  # noqa: ARG001
    assignments: torch.Tensor,  # noqa: ARG001
    ends: torch.Tensor,  # noqa: ARG001
    of_w1: bool,  # noqa: FBT001
    of_w2: bool,  # noqa: FBT001
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    shapes = (x.shape, weights.shape, w1.shape if of_w1 else 0, w2.shape if of_w2 else 0)
    given = (x, weights, w1, w2)
    return tuple(t.new_empty(shape) for t, shape in zip(given, shapes, strict=True))


@torch.library.register_fake(add_op_namespace_prefix("sort"))
def sort_fake(ids: torch.Tensor, experts: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    count = ids.shape[0] * ids.shape[1]
    rows = (count + 7 * min(count, experts) + 7) // 8 * 8
    return ids.new_empty(ids.shape), ids.new_empty(rows), ids.new_empty(experts)


@torch.library.register_fake(add_op_namespace_prefix("spread"))
def _spread_fake(
    x: torch.Tensor,
    grad: torch.Tensor,  # noqa: ARG001
    assignments: torch.Tensor,
    top_k: int,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (assignments.shape[0], x.shape[1])
    return x.new_empty(shape), x.new_empty(shape)


@torch.library.register_fake(add_op_namespace_prefix("gate_backward"))
def _gate_backward_fake(
    both: torch.Tensor,
    plain: torch.Tensor,
    weights: torch.Tensor,
    assignments: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    dweights = weights.new_empty(assignments.shape)
    return both.new_empty(both.shape), plain.new_empty(plain.shape), dweights


@torch.library.register_fake(add_op_namespace_prefix("sum_rows"))
def _sum_rows_fake(
    rows: torch.Tensor, dweights: torch.Tensor, positions: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    y = rows.new_empty((positions.shape[0], rows.shape[1]))
    return y, dweights.new_empty(positions.shape)

# SPDX-License-Identifier: Apache-2.0
"""The functions, their gradient and what they promise a compiler."""

from __future__ import annotations

import torch
from torch.autograd import forward_ad
from torch.nn.functional import pad

from . import backward
from ._ops import add_op_namespace_prefix, ops

# Overloads, not packets: which one is meant need not be found out again at each call.
_route = ops.route.default
_experts = ops.experts.default
_experts_kept = ops.experts_kept.default
_routed_experts = ops.routed_experts.default

_SCORES = {"softmax": False, "sigmoid": True}
_HALVES = (torch.float16, torch.bfloat16)


def moe(
    x: torch.Tensor,
    router_logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    top_k: int,
    *,
    scoring: str = "softmax",
    normalize: bool = True,
    bias: torch.Tensor | None = None,
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
    w1_scale: torch.Tensor | None = None,
    w2_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """The weighted sum of the outputs of the ``top_k`` experts of each token.

    An expert is ``w2 @ (silu(gate) * up)``, where gate and up are the halves of ``w1 @ x``: what
    the blocks of Mixtral, Qwen3-MoE and DeepSeek compute. It is
    ``experts(x, *route(router_logits))``.

    Differentiable once in ``x``, ``router_logits``, ``w1`` and ``w2``; which experts a token has is
    a constant.

    Args:
        x: float16, bfloat16 or float32 ``[..., width]``, on CPUs float64 as well.
        router_logits: ``[..., experts]`` with the leading dimensions of ``x``.
        w1: ``[experts, 2 * inner, width]`` of the dtype of ``x``, the gate before up.
        w2: ``[experts, width, inner]`` of the dtype of ``x``.
        top_k: experts of a token, from 1 to 32.
        scoring: ``"softmax"`` or ``"sigmoid"`` of the logits, in float32.
        normalize: divide the weights of a token by their sum.
        bias: float32 ``[experts]``, added to the scores to choose by, not to the weights.
        scale: multiplies the weights.
        groups: the experts are that many groups side by side, of which a token has
        top_groups: open: those whose two best scores (with ``bias``) have the largest sums.
        w1_scale: as ``experts`` has it.
        w2_scale: as ``experts`` has it.

    Returns:
        A contiguous tensor of the shape of ``x``, the same bits in every run.

    Raises:
        ValueError: a shape, dtype, device or number is not as above.
        RuntimeError: CUDA refused the launch.
    """
    if not (
        _differentiated(x, router_logits, w1, w2)
        or _is_autocast(x)
        or (x.dtype is torch.float64) != (router_logits.dtype is torch.float64)
    ):
        rows, w1, w2 = _padded(_rows(x), w1, w2, top_k)
        y = _routed_experts(
            rows,
            _rows(router_logits),
            w1,
            w2,
            top_k,
            _is_sigmoid(scoring),
            normalize,
            bias,
            scale,
            groups,
            top_groups,
            w1_scale,
            w2_scale,
        )
        return _unpadded(y, x)
    weights, ids = route(
        router_logits,
        top_k,
        scoring=scoring,
        normalize=normalize,
        bias=bias,
        scale=scale,
        groups=groups,
        top_groups=top_groups,
    )
    return experts(x, weights, ids, w1, w2, w1_scale=w1_scale, w2_scale=w2_scale)


def route(
    router_logits: torch.Tensor,
    top_k: int,
    *,
    scoring: str = "softmax",
    normalize: bool = True,
    bias: torch.Tensor | None = None,
    scale: float = 1.0,
    groups: int = 1,
    top_groups: int = 1,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The weights and the experts of each token; the arguments are those of ``moe``.

    Returns:
        float32 (of float64 logits float64) and int32 ``[..., top_k]``, by falling score, of equal
        scores the first expert before.
    """
    sigmoid, logits = _is_sigmoid(scoring), _rows(router_logits)
    if _differentiated(logits):
        weights, ids = _Route.apply(
            logits, bias, top_k, sigmoid, normalize, scale, groups, top_groups
        )
    else:
        weights, ids = _route(logits, bias, top_k, sigmoid, normalize, scale, groups, top_groups)
    shape = (*router_logits.shape[:-1], top_k)
    return weights.view(shape), ids.view(shape)


def experts(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    *,
    w1_scale: torch.Tensor | None = None,
    w2_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    """The sum over j of ``weights[t, j]`` times the output of expert ``ids[t, j]`` of ``x[t]``.

    Differentiable once in all but ``ids``; of weights with factors in ``x`` and ``weights`` alone.
    Under ``torch.autocast`` x, w1 and w2 are cast, with factors only x.

    Args:
        x: float16, bfloat16 or float32 ``[..., width]``, on CPUs float64 as well.
        weights: ``[..., top_k]``, cast to float32 (with a float64 ``x`` to float64).
        ids: integers ``[..., top_k]``. One outside of the experts adds nothing.
        w1: ``[experts, 2 * inner, width]`` of the dtype of ``x``, the gate before up; with factors
            ``torch.float8_e4m3fn``.
        w2: ``[experts, width, inner]`` of the same dtype.
        w1_scale: float32 ``[experts, ceil(2 * inner / 128), ceil(width / 128)]``: each block of 128
            by 128 of ``w1`` is multiplied by its factor, as DeepSeek-V3 and the FP8 models of Qwen3
            have it (``weight_scale_inv``). x is not quantized.
        w2_scale: the same of ``w2``, ``[experts, ceil(width / 128), ceil(inner / 128)]``.

    Returns:
        A contiguous tensor of the shape of ``x``, the same bits in every run.

    Raises:
        ValueError: a shape, dtype or device is not as above, or only one of the factors is there.
        RuntimeError: CUDA refused the launch.
    """
    scales = (w1_scale, w2_scale)
    if _is_autocast(x):
        dtype = torch.get_autocast_dtype(x.device.type)
        x = x.to(dtype)
        if scales == (None, None):
            w1, w2 = w1.to(dtype), w2.to(dtype)
    weights = weights.to(torch.float64 if x.dtype is torch.float64 else torch.float32)
    rows, w1, w2 = _padded(_rows(x), w1, w2, ids.shape[-1] if ids.dim() else 1)
    given = (rows, _rows(weights), _rows(ids.to(torch.int32)), w1, w2)
    if not _differentiated(*given):
        y = _experts(*given, *scales)
    elif scales == (None, None):
        y, *_ = _Experts.apply(*given)
    else:
        y = _ExpertsScaled.apply(*given, *scales)
    return _unpadded(y, x)


def _is_sigmoid(scoring: str) -> bool:
    sigmoid = _SCORES.get(scoring)
    if sigmoid is None:
        raise ValueError(f"moe: scoring must be 'softmax' or 'sigmoid', got {scoring!r}")
    return sigmoid


def _is_autocast(x: torch.Tensor) -> bool:
    return not x.is_meta and torch.is_autocast_enabled(x.device.type)


def _differentiated(*given: torch.Tensor) -> bool:
    """Whether a derivative is recorded: in forward mode, which torch then refuses, as well."""
    return forward_ad._current_level >= 0 or (
        torch.is_grad_enabled() and any(t.requires_grad for t in given)
    )


def _rows(t: torch.Tensor) -> torch.Tensor:
    return t if t.dim() == 2 else t.reshape(-1, t.shape[-1]) if t.dim() else t


def _padded(
    x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, top_k: int
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Add zeros up to rows of whole 16 bytes, which tensor cores read, where that is faster."""
    if not _is_faster_padded(x, w1, w2, top_k):
        return x, w1, w2
    experts, width, inner = w2.shape
    more_width, more_inner = -width % 8, -inner % 8
    halves = w1.view(experts, 2, inner, width)
    halves = pad(halves, (0, more_width, 0, more_inner))
    return pad(x, (0, more_width)), halves.flatten(1, 2), pad(w2, (0, more_inner, 0, more_width))


def _is_faster_padded(x: torch.Tensor, w1: torch.Tensor, w2: torch.Tensor, top_k: int) -> bool:
    """Whether tensor cores need padding, and gain more than a copy of the weights costs."""
    if not x.is_cuda or x.dtype not in _HALVES or w1.dtype is not x.dtype:
        return False
    if x.dim() != 2 or w2.dim() != 3:
        return False
    experts, width, inner = w2.shape
    if x.shape[1] != width or w1.shape != (experts, 2 * inner, width):
        return False  # the operator's error names the shapes
    # All experts are copied, also those without a token.
    pays = 2 * x.shape[0] * top_k >= experts
    odd = width % 8 != 0 or inner % 8 != 0
    return odd and pays and torch.cuda.get_device_capability(x.device) == (9, 0)


def _unpadded(y: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Take added columns away; in the shape of ``x``."""
    if y.shape[1] != x.shape[-1]:
        y = y[:, : x.shape[-1]].contiguous()
    return y.view(x.shape)


class _Route(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(logits, bias, top_k, sigmoid, normalize, scale, groups, top_groups):  # noqa: PLR0917 - what apply takes
        return _route(logits, bias, top_k, sigmoid, normalize, scale, groups, top_groups)

    @staticmethod
    def setup_context(ctx, inputs, output):
        logits, _, _, ctx.sigmoid, ctx.normalize, ctx.scale, *_ = inputs
        _, ids = output
        ctx.save_for_backward(logits, ids)
        ctx.mark_non_differentiable(ids)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, _):
        logits, ids = ctx.saved_tensors
        how = {"sigmoid": ctx.sigmoid, "normalize": ctx.normalize, "scale": ctx.scale}
        return backward.of_route(grad, logits, ids, **how), *[None] * 7


class _Experts(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weights, ids, w1, w2):
        return _experts_kept(x, weights, ids, w1, w2)

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, weights, _, w1, w2 = inputs
        _, *kept = output
        ctx.save_for_backward(x, weights, w1, w2, *kept)
        ctx.mark_non_differentiable(*kept)
        ctx.set_materialize_grads(False)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad, *_):
        if grad is None:
            return (None,) * 5
        *_, wants_w1, wants_w2 = ctx.needs_input_grad
        dx, dweights, dw1, dw2 = backward.of_experts(grad, *ctx.saved_tensors, wants_w1, wants_w2)
        return dx, dweights, None, dw1 if wants_w1 else None, dw2 if wants_w2 else None


class _ExpertsScaled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x, weights, ids, w1, w2, w1_scale, w2_scale):  # noqa: PLR0917 - what apply takes
        return _experts(x, weights, ids, w1, w2, w1_scale, w2_scale)

    @staticmethod
    def setup_context(ctx, inputs, output):  # noqa: ARG004
        ctx.save_for_backward(*inputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, grad):
        x, weights, ids, w1, w2, w1_scale, w2_scale = ctx.saved_tensors
        w1 = backward.widened(w1, w1_scale, x.dtype)
        w2 = backward.widened(w2, w2_scale, x.dtype)
        sorted_rows = backward.sort(ids, w1.shape[0])
        dx, dweights, _, _ = backward.of_experts(
            grad, x, weights, w1, w2, None, *sorted_rows, False, False
        )
        return dx, dweights, None, None, None, None, None


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


@torch.library.register_fake(add_op_namespace_prefix("route"))
def _route_fake(  # noqa: PLR0917 - what the op takes
    logits: torch.Tensor,
    bias: torch.Tensor | None,  # noqa: ARG001
    top_k: int,
    sigmoid: bool,  # noqa: ARG001, FBT001
    normalize: bool,  # noqa: ARG001, FBT001
    scale: float,  # noqa: ARG001
    groups: int,  # noqa: ARG001
    top_groups: int,  # noqa: ARG001
) -> tuple[torch.Tensor, torch.Tensor]:
    torch._check(
        logits.dim() == 2,
        lambda: f"moe: router_logits must be [tokens, experts], got {list(logits.shape)}",
    )
    wide = torch.float64 if logits.dtype is torch.float64 else torch.float32
    shape = (logits.shape[0], top_k)
    return logits.new_empty(shape, dtype=wide), logits.new_empty(shape, dtype=torch.int32)


@torch.library.register_fake(add_op_namespace_prefix("experts"))
def _experts_fake(  # noqa: PLR0917 - what the op takes
    x: torch.Tensor,
    weights: torch.Tensor,  # noqa: ARG001
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    w1_scale: torch.Tensor | None = None,
    w2_scale: torch.Tensor | None = None,
) -> torch.Tensor:
    torch._check(
        x.dtype in _DTYPES,
        lambda: f"moe: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )
    torch._check(
        x.dim() == 2 and ids.dim() == 2 and ids.shape[0] == x.shape[0],
        lambda: f"moe: ids must be [{x.shape[0]}, top_k], got {list(ids.shape)}",
    )
    torch._check(
        w2.dim() == 3 and w2.shape[1] == x.shape[1],
        lambda: f"moe: w2 must be [experts, {x.shape[1]}, inner], got {list(w2.shape)}",
    )
    torch._check(
        w1.shape == (w2.shape[0], 2 * w2.shape[2], x.shape[1]),
        lambda: (
            f"moe: w1 must be [{w2.shape[0]}, {2 * w2.shape[2]}, {x.shape[1]}],"
            f" got {list(w1.shape)}"
        ),
    )
    torch._check(
        (w1_scale is None) == (w2_scale is None),
        lambda: "moe: w1_scale and w2_scale belong together, one is None",
    )
    for name, weight, scale in (("w1", w1, w1_scale), ("w2", w2, w2_scale)):
        blocks = [weight.shape[0], *(-(-size // 128) for size in weight.shape[1:])]
        torch._check(
            scale is None or list(scale.shape) == blocks,
            lambda name=name, blocks=blocks, scale=scale: (
                f"moe: {name}_scale must be {blocks}, got {list(scale.shape)}"
            ),
        )
    return x.new_empty(x.shape)


@torch.library.register_fake(add_op_namespace_prefix("routed_experts"))
def _routed_experts_fake(  # noqa: PLR0917 - what the op takes
    x: torch.Tensor,
    logits: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
    top_k: int,
    sigmoid: bool,  # noqa: FBT001
    normalize: bool,  # noqa: FBT001
    bias: torch.Tensor | None,
    scale: float,
    groups: int,
    top_groups: int,
    w1_scale: torch.Tensor | None,
    w2_scale: torch.Tensor | None,
) -> torch.Tensor:
    routed = _route_fake(logits, bias, top_k, sigmoid, normalize, scale, groups, top_groups)
    return _experts_fake(x, *routed, w1, w2, w1_scale, w2_scale)


@torch.library.register_fake(add_op_namespace_prefix("experts_kept"))
def _experts_kept_fake(
    x: torch.Tensor,
    weights: torch.Tensor,
    ids: torch.Tensor,
    w1: torch.Tensor,
    w2: torch.Tensor,
) -> tuple[torch.Tensor, ...]:
    y = _experts_fake(x, weights, ids, w1, w2)
    positions, assignments, ends = backward.sort_fake(ids, w2.shape[0])
    both = x.new_empty((assignments.shape[0], w1.shape[1]))
    return y, both, positions, assignments, ends

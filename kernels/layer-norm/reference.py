# SPDX-License-Identifier: Apache-2.0
"""The specification, in whatever precision it is given."""

from __future__ import annotations

import torch


def _of_rows(
    x: torch.Tensor, mean: torch.Tensor | float, weight: torch.Tensor | None, eps: float
) -> torch.Tensor:
    centred = x - mean
    normal = centred * torch.rsqrt(centred.square().mean(-1, keepdim=True) + eps)
    return normal if weight is None else normal * weight


def layer_norm(
    x: torch.Tensor,
    weight: torch.Tensor | None = None,
    bias: torch.Tensor | None = None,
    eps: float = 1e-5,
) -> torch.Tensor:
    """LayerNorm of rows.

    Args:
        x: floats ``[..., width]``; pass float64 for the truth.
        weight: ``[width]`` or None.
        bias: ``[width]`` or None.
        eps: what is added to the variance.
    """
    y = _of_rows(x, x.mean(-1, keepdim=True), weight, eps)
    return y if bias is None else y + bias


def rms_norm(
    x: torch.Tensor, weight: torch.Tensor | None = None, eps: float = 1e-6
) -> torch.Tensor:
    """RMSNorm of rows."""
    return _of_rows(x, 0.0, weight, eps)

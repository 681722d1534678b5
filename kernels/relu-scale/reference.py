# SPDX-License-Identifier: Apache-2.0
"""The specification, in float64."""

from __future__ import annotations

import torch


def relu_scale(x: torch.Tensor, alpha: float) -> torch.Tensor:
    """``alpha * x`` where x is positive or NaN, 0 elsewhere."""
    x = x.double()
    return torch.where(x < 0, 0.0, x) * alpha


def relu_scale_backward(grad: torch.Tensor, x: torch.Tensor, alpha: float) -> torch.Tensor:
    """The gradient: ``alpha * grad`` where x is positive or NaN, 0 elsewhere."""
    return torch.where(x <= 0, 0.0, grad.double() * alpha)

# SPDX-License-Identifier: Apache-2.0
"""The specification, in whatever precision it is given."""

from __future__ import annotations

import math

import torch

ROOT = math.sqrt(8 / math.pi)


def gelu_approx(x: torch.Tensor) -> torch.Tensor:
    """``x * sigmoid(2 u)``, which is ``x / 2 * (1 + tanh(u))``; its limit, -0, at -inf.

    Args:
        x: floats of any shape; pass float64 for the truth.
    """
    u = ROOT * (x + 0.044715 * x**3)
    return torch.where(x == -math.inf, -0.0, x) * torch.sigmoid(u)


def gelu_approx_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """The gradient in float64; its limits 0 and 1 at the infinities."""
    x = x.double()
    near = x.clamp(-40.0, 40.0)
    s = torch.sigmoid(ROOT * (near + 0.044715 * near**3))
    slope = ROOT * (1 + 3 * 0.044715 * near**2)
    return grad.double() * (s + near * slope * s * (1 - s))

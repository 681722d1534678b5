# SPDX-License-Identifier: Apache-2.0
"""The specification, in whatever precision it is given."""

from __future__ import annotations

import math

import torch

ROOT = math.sqrt(8 / math.pi)


def linear_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, approximate: str = "tanh"
) -> torch.Tensor:
    """GELU of a linear map, without the cancellation of torch's own for z < 0.

    Args:
        x: floats ``[..., in_features]``; pass float64 for the truth.
        weight: ``[out_features, in_features]``.
        bias: ``[out_features]`` or None.
        approximate: ``"tanh"`` or ``"none"``.
    """
    z = torch.nn.functional.linear(x, weight, bias)
    if approximate == "tanh":
        return z * torch.sigmoid(ROOT * (z + 0.044715 * z**3))
    return z / 2 * torch.special.erfc(-z / math.sqrt(2))

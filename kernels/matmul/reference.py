# SPDX-License-Identifier: Apache-2.0
"""The specification, in whatever precision it is given."""

from __future__ import annotations

import torch

ACTIVATIONS = {
    None: lambda z: z,
    "relu": torch.nn.functional.relu,
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
    "gelu": torch.nn.functional.gelu,
    "silu": torch.nn.functional.silu,
}


def matmul(
    a: torch.Tensor,
    b: torch.Tensor,
    bias: torch.Tensor | None = None,
    activation: str | None = None,
    residual: torch.Tensor | None = None,
) -> torch.Tensor:
    """A matrix product and what follows it.

    Args:
        a: floats ``[..., rows, depth]``; pass float64 for the truth.
        b: ``[..., depth, columns]``.
        bias: ``[columns]`` or None.
        activation: None, ``"relu"``, ``"gelu_tanh"``, ``"gelu"`` or ``"silu"``.
        residual: of the shape of the result, or None.
    """
    z = torch.matmul(a, b)
    z = z if bias is None else z + bias
    z = ACTIVATIONS[activation](z)
    return z if residual is None else z + residual

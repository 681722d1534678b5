# SPDX-License-Identifier: Apache-2.0
"""Layers that ``kernelize`` puts in the place of a model's."""

from __future__ import annotations

import torch

from .functional import layer_norm, rms_norm


class LayerNorm(torch.nn.Module):
    """For ``torch.nn.LayerNorm``, and layers with the same attributes."""

    has_backward = True
    can_torch_compile = True

    weight: torch.Tensor | None
    bias: torch.Tensor | None
    normalized_shape: tuple[int, ...]
    eps: float

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """LayerNorm over the last dimensions, as many as ``normalized_shape`` has."""
        return layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.Module):
    """For ``torch.nn.RMSNorm``, and for a model's own with ``weight`` and ``variance_epsilon``.

    The weight multiplies before the result is rounded, and the result has the dtype of ``x``.
    """

    has_backward = True
    can_torch_compile = True

    weight: torch.Tensor

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """RMSNorm over the last dimensions, as many as the weight has."""
        eps = self.variance_epsilon if hasattr(self, "variance_epsilon") else self.eps
        shape = self.normalized_shape if self.weight is None else self.weight.shape
        return rms_norm(hidden_states, shape, self.weight, eps)


# The names that the hub's kernels of the same layer have.
LlamaRMSNorm = LigerRMSNorm = RMSNorm

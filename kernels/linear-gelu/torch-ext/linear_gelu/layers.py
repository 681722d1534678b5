# SPDX-License-Identifier: Apache-2.0
"""Layers that ``kernelize`` puts in the place of a model's."""

from __future__ import annotations

import torch

from .functional import linear_gelu


class LinearGELU(torch.nn.Module):
    """For a layer with ``weight`` and ``bias`` that computes GELU of its linear map.

    The formula is that of the layer's attribute ``approximate``, ``"tanh"`` where it has none.
    """

    has_backward = True
    can_torch_compile = True

    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``gelu(x @ weight.T + bias)``."""
        return linear_gelu(x, self.weight, self.bias, getattr(self, "approximate", "tanh"))

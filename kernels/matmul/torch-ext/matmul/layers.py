# SPDX-License-Identifier: Apache-2.0
"""Layers that ``kernelize`` puts in the place of a model's."""

from __future__ import annotations

import torch

from .functional import matmul


class Linear(torch.nn.Module):
    """For a layer with ``weight`` and ``bias`` that computes a linear map."""

    has_backward = True
    can_torch_compile = True

    weight: torch.Tensor
    bias: torch.Tensor | None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """``x @ weight.T + bias``."""
        rows = x.reshape(-1, x.shape[-1])
        y = matmul(rows, self.weight.t(), bias=self.bias)
        return y.view(*x.shape[:-1], self.weight.shape[0])

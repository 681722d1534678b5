# SPDX-License-Identifier: Apache-2.0
"""Layers that ``kernelize`` puts in the place of a model's."""

from __future__ import annotations

import torch

from .functional import experts


class MoEMLP(torch.nn.Module):
    """For the experts of a mixture, with the weights of all in two tensors.

    ``gate_up_proj`` is ``[experts, 2 * inner, width]`` and ``down_proj``
    ``[experts, width, inner]``: those of ``MixtralExperts`` and ``Qwen3MoeExperts`` of transformers
    5.
    """

    has_backward = True
    can_torch_compile = True

    gate_up_proj: torch.Tensor
    down_proj: torch.Tensor

    def forward(
        self, hidden_states: torch.Tensor, top_k_index: torch.Tensor, top_k_weights: torch.Tensor
    ) -> torch.Tensor:
        """The weighted sum of each token's experts."""
        return experts(hidden_states, top_k_weights, top_k_index, self.gate_up_proj, self.down_proj)

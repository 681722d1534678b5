# SPDX-License-Identifier: Apache-2.0
"""The specification: torch's own, where equal elements keep their order."""

from __future__ import annotations

import torch


def sort(
    x: torch.Tensor,
    dim: int = -1,
    descending: bool = False,  # noqa: FBT001, FBT002 - as torch.sort
) -> tuple[torch.Tensor, torch.Tensor]:
    """The elements in order along a dimension, and int64 indices."""
    values, indices = torch.sort(x, dim=dim, descending=descending, stable=True)
    return values, indices


def topk(
    x: torch.Tensor,
    k: int,
    dim: int = -1,
    largest: bool = True,  # noqa: FBT001, FBT002 - as torch.topk
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first ``k`` of the elements in order; of equal ones those with the lowest indices."""
    values, indices = sort(x, dim, largest)
    if x.dim() == 0:
        return values, indices
    return values.narrow(dim, 0, k), indices.narrow(dim, 0, k)

# SPDX-License-Identifier: Apache-2.0
"""The specification, in float64."""

from __future__ import annotations

import torch

VOXELS = (-3, -2, -1)


def normalize_volume(
    volume: torch.Tensor, mean: float | None = None, std: float | None = None
) -> torch.Tensor:
    """``(volume - mean) / std``; without them each volume's own, and 1 for a deviation of 0."""
    v = volume.double()
    if mean is None or std is None:
        mean = v.mean(VOXELS, keepdim=True)
        std = (v - mean).square().mean(VOXELS, keepdim=True).sqrt()
        std = torch.where(std == 0, 1.0, std)
    return (v - mean) / std


def window_volume(volume: torch.Tensor, low: float, high: float) -> torch.Tensor:
    """``(volume - low) / (high - low)`` clipped to ``[0, 1]``."""
    return ((volume.double() - low) / (high - low)).clamp(0, 1)

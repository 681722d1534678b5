# SPDX-License-Identifier: __LICENSE__
"""The specification in plain torch, without conversions: tests call it in float64 too."""

from __future__ import annotations

import torch


def __PYTHON_NAME__(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """``max(x, 0) * scale`` in the dtype of ``x``."""
    return torch.relu(x) * scale

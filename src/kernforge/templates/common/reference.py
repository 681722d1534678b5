# SPDX-License-Identifier: __LICENSE__
"""The specification: plain torch in float64."""

from __future__ import annotations

import torch


def __PYTHON_NAME__(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    """``max(x, 0) * scale`` in float64."""
    return torch.relu(x.double()) * scale

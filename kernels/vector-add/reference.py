# SPDX-License-Identifier: Apache-2.0
"""The specification, in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def vector_add(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The sum, element by element."""
    return a.double() + b.double()

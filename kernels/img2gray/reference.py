# SPDX-License-Identifier: Apache-2.0
"""The specification: weighted means of whole numbers, halves rounded up, in 64-bit integers."""

from __future__ import annotations

import torch

# Red, green, blue; their sum is the divisor.
WEIGHTS = {"default": (21, 72, 7), "bt601": (299, 587, 114)}


def img2gray(image: torch.Tensor, weights: str = "default") -> torch.Tensor:
    """Gray of uint8 ``[..., 3]`` as uint8 ``[...]``."""
    red, green, blue = WEIGHTS[weights]
    divisor = red + green + blue
    r, g, b = image.to(torch.int64).unbind(-1)
    return ((red * r + green * g + blue * b + divisor // 2) // divisor).to(torch.uint8)

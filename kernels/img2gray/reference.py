# SPDX-License-Identifier: Apache-2.0
"""The specification: weighted means of whole numbers, halves rounded up, in 64-bit integers.

What is truncated is the tutorials' formula instead, in float32, one rounding for each operation.
"""

from __future__ import annotations

import torch

# Red, green, blue; their sum is the divisor.
WEIGHTS = {"default": (21, 72, 7), "bt601": (299, 587, 114)}


def img2gray(
    image: torch.Tensor, weights: str = "default", rounding: str = "nearest"
) -> torch.Tensor:
    """Gray of uint8 ``[..., 3]`` as uint8 ``[...]``."""
    red, green, blue = WEIGHTS[weights]
    divisor = red + green + blue
    if rounding == "truncate":
        factors = (torch.tensor(w / divisor, dtype=torch.float32) for w in (red, green, blue))
        r, g, b = (
            x * w.to(x.device) for x, w in zip(image.float().unbind(-1), factors, strict=True)
        )
        return ((r + g) + b).to(torch.uint8)
    r, g, b = image.to(torch.int64).unbind(-1)
    return ((red * r + green * g + blue * b + divisor // 2) // divisor).to(torch.uint8)

# SPDX-License-Identifier: Apache-2.0
"""Every shape and path: ``python scripts/sanitize.py kernels/normalize-volume``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.int16, torch.uint8):
        for name, shape in cases.MOMENTS.items():
            volume = torch.randint(0, 256, shape).to(dtype).cuda()
            kernel.normalize_volume(volume)
            yield f"{name} {dtype}"
            kernel.normalize_volume(volume, 1000.0, 300.0)
            yield f"{name} {dtype}, by a range"
            kernel.volume_mean_std(volume)
            yield f"{name} {dtype}, moments"

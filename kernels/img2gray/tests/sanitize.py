# SPDX-License-Identifier: Apache-2.0
"""Small images of awkward shapes: ``python scripts/sanitize.py kernels/img2gray``."""

import torch


def calls(kernel, _):
    """Make each call, and give its name."""
    for height, width in ((1, 1), (3, 5), (17, 33), (64, 257), (100, 1000)):
        wide = torch.randint(0, 256, (height + 2, width + 7, 3), dtype=torch.uint8).cuda()
        for left in (0, 1, 5):
            crop = wide[1 : 1 + height, left : left + width]
            for image in (crop, crop.contiguous(), crop.transpose(0, 1), crop[None]):
                for weights in ("default", "bt601"):
                    kernel.img2gray(image, weights)
                    yield f"{list(image.shape)} {weights}"

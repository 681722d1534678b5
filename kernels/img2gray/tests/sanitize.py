# SPDX-License-Identifier: Apache-2.0
"""The published kernel on small images of awkward shapes, to be run under compute-sanitizer.

KERNFORGE_REGISTRY=... compute-sanitizer --tool memcheck --error-exitcode 1 python sanitize.py
"""

import torch

import kernforge


def main():
    kernel = kernforge.get_kernel("kernforge/img2gray", version=1)
    for height, width in ((1, 1), (3, 5), (17, 33), (64, 257), (100, 1000)):
        wide = torch.randint(0, 256, (height + 2, width + 7, 3), dtype=torch.uint8, device="cuda")
        for left in (0, 1, 5):
            crop = wide[1 : 1 + height, left : left + width]
            for image in (crop, crop.contiguous(), crop.transpose(0, 1), crop[None]):
                kernel.img2gray(image)
                kernel.img2gray(image, "bt601")
    torch.cuda.synchronize()
    print(f"{kernel.__name__}: done")


if __name__ == "__main__":
    main()

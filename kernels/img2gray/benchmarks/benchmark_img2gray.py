# SPDX-License-Identifier: Apache-2.0
"""img2gray beside its definition in plain torch: ``kernforge benchmark`` or ``kernels benchmark``."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


def _reference(image, weights):
    divisor = sum(weights)
    r, g, b = (image[..., i].to(torch.int32) * weights[i] for i in range(3))
    return ((r + g + b + divisor // 2) // divisor).to(torch.uint8)


class Img2GrayBenchmark(Benchmark):
    seed = 42

    def _picture(self, *shape):
        self.image = torch.randint(0, 256, (*shape, 3), dtype=torch.uint8, device=self.device)
        self.out = torch.empty(shape, dtype=torch.uint8, device=self.device)

    def setup_4k(self):
        self._picture(2160, 3840)

    def benchmark_4k(self):
        self.kernel.img2gray(self.image, out=self.out)

    def verify_4k(self):
        return _reference(self.image, (21, 72, 7))

    def setup_4k_bt601(self):
        self._picture(2160, 3840)

    def benchmark_4k_bt601(self):
        self.kernel.img2gray(self.image, "bt601", out=self.out)

    def verify_4k_bt601(self):
        return _reference(self.image, (299, 587, 114))

    def setup_batch(self):
        self._picture(32, 224, 224)

    def benchmark_batch(self):
        self.kernel.img2gray(self.image, out=self.out)

    def verify_batch(self):
        return _reference(self.image, (21, 72, 7))

# SPDX-License-Identifier: Apache-2.0
"""normalize-volume beside plain torch: ``kernforge benchmark`` or ``kernels benchmark``."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark

MEAN, STD = 1200.0, 350.0
LOW, HIGH = -160.0, 240.0  # A window of level 40 and width 400.


class NormalizeVolumeBenchmark(Benchmark):
    seed = 42

    def _setup(self, dtype, low, high):
        shape = (64, 256, 256)
        values = torch.randint(low, high, shape, dtype=torch.int32, device=self.device)
        self.volume = values.to(dtype)
        self.out = torch.empty(shape, device=self.device)

    def setup_given(self):
        self._setup(torch.uint16, 0, 4096)

    def benchmark_given(self):
        self.out = self.kernel.normalize_volume(self.volume, MEAN, STD)

    def verify_given(self):
        return (self.volume.float() - MEAN) / STD

    def setup_own(self):
        self._setup(torch.uint16, 0, 4096)

    def benchmark_own(self):
        self.out = self.kernel.normalize_volume(self.volume)

    def verify_own(self):
        exact = self.volume.double()
        return ((exact - exact.mean()) / exact.std(correction=0)).float()

    def setup_window(self):
        self._setup(torch.int16, -1024, 3072)

    def benchmark_window(self):
        self.out = self.kernel.window_volume(self.volume, LOW, HIGH)

    def verify_window(self):
        return ((self.volume.float() - LOW) / (HIGH - LOW)).clamp(0, 1)

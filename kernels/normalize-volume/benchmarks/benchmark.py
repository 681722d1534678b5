# SPDX-License-Identifier: Apache-2.0
"""normalize-volume beside plain torch: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class NormalizeVolumeBenchmark(Benchmark):
    seed = 42

    def _setup(self, *shape):
        self.volume = torch.randint(0, 4096, shape, dtype=torch.int16, device=self.device)
        self.out = torch.empty(shape, device=self.device)

    def setup_patch(self):
        self._setup(16, 32, 32)

    def benchmark_patch(self):
        self.out = self.kernel.normalize_volume(self.volume)

    def verify_patch(self):
        v = self.volume.double()
        return ((v - v.mean()) / v.std(correction=0)).float()

    def setup_scan(self):
        self._setup(64, 256, 256)

    def benchmark_scan(self):
        self.out = self.kernel.normalize_volume(self.volume)

    def verify_scan(self):
        v = self.volume.double()
        return ((v - v.mean()) / v.std(correction=0)).float()

    def setup_window(self):
        self._setup(64, 256, 256)

    def benchmark_window(self):
        self.out = self.kernel.window_volume(self.volume, 864, 1264)

    def verify_window(self):
        return ((self.volume.double() - 864) / 400).clamp(0, 1).float()

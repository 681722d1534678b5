# SPDX-License-Identifier: __LICENSE__
"""The benchmark of the published kernel, for `kernforge benchmark` and `kernels benchmark`."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class ScaledReluBenchmark(Benchmark):
    seed = 42

    def _setup(self, *shape):
        self.x = torch.randn(shape, device=self.device)
        self.out = torch.empty_like(self.x)

    def _verify(self):
        return self.x.clamp(min=0) * 1.5

    def setup_small(self):
        self._setup(1024, 1024)

    def benchmark_small(self):
        self.out = self.kernel.__PYTHON_NAME__(self.x, 1.5)

    def verify_small(self):
        return self._verify()

    def setup_large(self):
        self._setup(8192, 8192)

    def benchmark_large(self):
        self.out = self.kernel.__PYTHON_NAME__(self.x, 1.5)

    def verify_large(self):
        return self._verify()

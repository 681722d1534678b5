# SPDX-License-Identifier: Apache-2.0
"""bitonic-sort beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class BitonicSortBenchmark(Benchmark):
    seed = 42

    def _setup(self, rows, length):
        self.x = torch.randn(rows, length, device=self.device)
        self.out = torch.empty(rows, length, device=self.device)

    def setup_rows(self):
        self._setup(4096, 1024)

    def benchmark_rows(self):
        self.out = self.kernel.sort(self.x).values

    def verify_rows(self):
        return torch.sort(self.x).values

    def setup_longer(self):
        self._setup(512, 4096)

    def benchmark_longer(self):
        self.out = self.kernel.sort(self.x).values

    def verify_longer(self):
        return torch.sort(self.x).values

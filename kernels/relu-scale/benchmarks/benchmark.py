# SPDX-License-Identifier: Apache-2.0
"""relu-scale beside plain torch: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark

ALPHA = 1.7


class ReluScaleBenchmark(Benchmark):
    seed = 42

    def _setup(self, *shape, dtype=torch.float32):
        self.x = torch.randn(*shape, device=self.device).to(dtype)
        self.out = torch.empty_like(self.x)

    def _reference(self):
        return torch.relu(self.x) * ALPHA

    def setup_small(self):
        self._setup(1024)

    def benchmark_small(self):
        self.out = self.kernel.relu_scale(self.x, ALPHA)

    def verify_small(self):
        return self._reference()

    def setup_large(self):
        self._setup(4096, 4096)

    def benchmark_large(self):
        self.out = self.kernel.relu_scale(self.x, ALPHA)

    def verify_large(self):
        return self._reference()

    def setup_large_bfloat16(self):
        self._setup(4096, 4096, dtype=torch.bfloat16)

    def benchmark_large_bfloat16(self):
        self.out = self.kernel.relu_scale(self.x, ALPHA)

    def verify_large_bfloat16(self):
        return self._reference()

    def setup_in_place(self):
        self._setup(4096, 4096)
        # What is overwritten is what the reference reads.
        self.before = self.x.clone()

    def benchmark_in_place(self):
        self.out = self.kernel.relu_scale_(self.x, ALPHA)

    def verify_in_place(self):
        return torch.relu(self.before) * ALPHA

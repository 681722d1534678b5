# SPDX-License-Identifier: Apache-2.0
"""vector-add beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class VectorAddBenchmark(Benchmark):
    seed = 42

    def _setup(self, count, dtype=torch.float32):
        self.a, self.b = (torch.randn(count, device=self.device).to(dtype) for _ in range(2))
        self.out = torch.empty_like(self.a)

    def setup_small(self):
        self._setup(1 << 10)

    def benchmark_small(self):
        self.out = self.kernel.vector_add(self.a, self.b)

    def verify_small(self):
        return self.a + self.b

    def setup_large(self):
        self._setup(1 << 24)

    def benchmark_large(self):
        self.out = self.kernel.vector_add(self.a, self.b)

    def verify_large(self):
        return self.a + self.b

    def setup_large_bfloat16(self):
        self._setup(1 << 24, torch.bfloat16)

    def benchmark_large_bfloat16(self):
        self.out = self.kernel.vector_add(self.a, self.b)

    def verify_large_bfloat16(self):
        return self.a + self.b

    def setup_large_tail(self):
        self._setup((1 << 24) + 1)

    def benchmark_large_tail(self):
        self.out = self.kernel.vector_add(self.a, self.b)

    def verify_large_tail(self):
        return self.a + self.b

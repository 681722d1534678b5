# SPDX-License-Identifier: Apache-2.0
"""matmul beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class MatmulBenchmark(Benchmark):
    seed = 42

    def _setup(self, rows, depth, columns):
        half = {"device": self.device, "dtype": torch.bfloat16}
        self.a = torch.randn(rows, depth, **half)
        self.b = torch.randn(depth, columns, **half)
        self.out = torch.empty(rows, columns, **half)

    def _run(self):
        self.out = self.kernel.matmul(self.a, self.b)

    def setup_square(self):
        self._setup(4096, 4096, 4096)

    def benchmark_square(self):
        self._run()

    def verify_square(self):
        return torch.matmul(self.a, self.b)

    def setup_shallow(self):
        self._setup(8192, 1024, 8192)

    def benchmark_shallow(self):
        self._run()

    def verify_shallow(self):
        return torch.matmul(self.a, self.b)

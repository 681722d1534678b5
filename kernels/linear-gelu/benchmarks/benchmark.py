# SPDX-License-Identifier: Apache-2.0
"""linear-gelu beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class LinearGeluBenchmark(Benchmark):
    seed = 42

    def _setup(self, rows, depth, columns):
        half = {"device": self.device, "dtype": torch.bfloat16}
        self.x = torch.randn(rows, depth, **half)
        self.weight = torch.randn(columns, depth, **half) / depth**0.5
        self.bias = torch.randn(columns, **half)
        self.out = torch.empty(rows, columns, **half)

    def _run(self):
        self.out = self.kernel.linear_gelu(self.x, self.weight, self.bias)

    def _reference(self):
        z = torch.nn.functional.linear(self.x, self.weight, self.bias)
        return torch.nn.functional.gelu(z, approximate="tanh")

    def setup_decode(self):
        self._setup(8, 4096, 4096)

    def benchmark_decode(self):
        self._run()

    def verify_decode(self):
        return self._reference()

    def setup_large(self):
        self._setup(2048, 4096, 4096)

    def benchmark_large(self):
        self._run()

    def verify_large(self):
        return self._reference()

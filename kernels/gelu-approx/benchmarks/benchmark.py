# SPDX-License-Identifier: Apache-2.0
"""gelu-approx beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class GeluApproxBenchmark(Benchmark):
    seed = 42

    def _setup(self, *shape, dtype=torch.float32):
        self.x = torch.randn(*shape, device=self.device).to(dtype)
        self.out = torch.empty_like(self.x)

    def _reference(self):
        return torch.nn.functional.gelu(self.x, approximate="tanh")

    def setup_small(self):
        self._setup(1024)

    def benchmark_small(self):
        self.out = self.kernel.gelu_approx(self.x)

    def verify_small(self):
        return self._reference()

    def setup_large(self):
        self._setup(4096, 4096)

    def benchmark_large(self):
        self.out = self.kernel.gelu_approx(self.x)

    def verify_large(self):
        return self._reference()

    def setup_large_bfloat16(self):
        self._setup(4096, 4096, dtype=torch.bfloat16)

    def benchmark_large_bfloat16(self):
        self.out = self.kernel.gelu_approx(self.x)

    def verify_large_bfloat16(self):
        return self._reference()

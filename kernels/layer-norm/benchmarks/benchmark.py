# SPDX-License-Identifier: Apache-2.0
"""layer-norm beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class LayerNormBenchmark(Benchmark):
    seed = 42

    def _setup(self, rows, width):
        half = {"device": self.device, "dtype": torch.bfloat16}
        self.x, self.residual = (torch.randn(rows, width, **half) for _ in range(2))
        self.weight, self.bias = (torch.randn(width, **half) for _ in range(2))
        self.out = torch.empty_like(self.x)

    def setup_layer(self):
        self._setup(8192, 4096)

    def benchmark_layer(self):
        self.out = self.kernel.layer_norm(self.x, 4096, self.weight, self.bias)

    def verify_layer(self):
        return torch.nn.functional.layer_norm(self.x, (4096,), self.weight, self.bias)

    def setup_rms(self):
        self._setup(8192, 4096)

    def benchmark_rms(self):
        self.out = self.kernel.rms_norm(self.x, 4096, self.weight, 1e-6)

    def verify_rms(self):
        return torch.nn.functional.rms_norm(self.x, (4096,), self.weight, 1e-6)

    def setup_add_rms(self):
        self._setup(8192, 4096)

    def benchmark_add_rms(self):
        self.out, _ = self.kernel.add_rms_norm(self.x, self.residual, 4096, self.weight, 1e-6)

    def verify_add_rms(self):
        return torch.nn.functional.rms_norm(self.x + self.residual, (4096,), self.weight, 1e-6)

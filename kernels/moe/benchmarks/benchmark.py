# SPDX-License-Identifier: Apache-2.0
"""moe beside torch's own: ``kernforge benchmark`` or ``kernels benchmark`` of its repo id."""

from __future__ import annotations

import torch
from kernels.benchmark import Benchmark


class MoeBenchmark(Benchmark):
    seed = 42

    def _setup(self, tokens, experts, top, width, inner):
        half = {"device": self.device, "dtype": torch.bfloat16}
        self.top = top
        self.x = torch.randn(tokens, width, **half)
        self.logits = torch.randn(tokens, experts, device=self.device)
        self.w1 = torch.randn(experts, 2 * inner, width, **half) / width**0.5
        self.w2 = torch.randn(experts, width, inner, **half) / inner**0.5
        self.out = torch.empty_like(self.x)

    def _run(self):
        self.out = self.kernel.moe(self.x, self.logits, self.w1, self.w2, self.top)

    def _reference(self):
        weights, ids = self.logits.softmax(1).topk(self.top, dim=1)
        weights = weights / weights.sum(1, keepdim=True)
        y = torch.zeros_like(self.x)
        for e in range(len(self.w1)):
            token, place = torch.where(ids == e)
            gate, up = torch.nn.functional.linear(self.x[token], self.w1[e]).chunk(2, 1)
            out = torch.nn.functional.linear(torch.nn.functional.silu(gate) * up, self.w2[e])
            y.index_add_(0, token, (out * weights[token, place, None]).to(y.dtype))
        return y

    def setup_decode(self):
        self._setup(16, 64, 4, 1024, 512)

    def benchmark_decode(self):
        self._run()

    def verify_decode(self):
        return self._reference()

    def setup_large(self):
        self._setup(2048, 8, 2, 2048, 2048)

    def benchmark_large(self):
        self._run()

    def verify_large(self):
        return self._reference()

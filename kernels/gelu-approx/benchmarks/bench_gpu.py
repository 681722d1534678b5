# SPDX-License-Identifier: Apache-2.0
"""gelu-approx on an NVIDIA GPU beside its peers: ``python .../bench_gpu.py --json out.json``.

Forward, and the gradient's own op beside ``aten.gelu_backward``.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[2]))
from sweep import Workload, main

_spec = importlib.util.spec_from_file_location(
    "reference", Path(__file__).parents[1] / "reference.py"
)
reference = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(reference)

RTOL = {torch.float32: 1e-6, torch.float16: 1e-3, torch.bfloat16: 5e-3}


def plain(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


def by_torch_ops(x):
    return torch.ops.aten.gelu.default(x, approximate="tanh")


def plain_backward(grad, x):
    return torch.ops.aten.gelu_backward(grad, x, approximate="tanh")


def workloads(kernel, dtype):
    def make(n):
        return torch.randn(n, device="cuda").to(dtype)

    yield Workload(
        name=f"gelu_approx {dtype}",
        make=lambda n: (make(n),),
        # The last is torch's own kernel by torch.ops, the way of custom ops without a direct one.
        calls={
            "ours": kernel.gelu_approx,
            "torch eager": plain,
            "torch eager, by torch.ops": by_torch_ops,
        },
        expression=plain,
        reference=lambda x: reference.gelu_approx(x.double()),
        bytes_per_element=2 * dtype.itemsize,
        rtol=RTOL[dtype],
    )
    yield Workload(
        name=f"gelu_approx_backward {dtype}",
        make=lambda n: (make(n), make(n)),
        calls={"ours": kernel._backward, "torch eager": plain_backward},
        expression=plain_backward,
        reference=reference.gelu_approx_backward,
        bytes_per_element=3 * dtype.itemsize,
        rtol=RTOL[dtype],
    )


if __name__ == "__main__":
    main("gelu-approx", workloads)

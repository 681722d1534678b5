# SPDX-License-Identifier: Apache-2.0
"""Every path, strides and options: ``python scripts/sanitize.py kernels/matmul``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        # Both half types have one code.
        large = {} if dtype is torch.float16 else cases.LARGE
        for name, (rows, depth, columns) in {**cases.SHAPES, **large}.items():
            sizes = ((rows, depth), (columns, depth), (columns,), (rows, columns))
            a, b, bias, residual = (torch.randn(size).to(dtype).cuda() for size in sizes)
            kernel.matmul(a, b.t())
            yield f"{name} {dtype}"
            kernel.matmul(a, b.t(), bias=bias, activation="silu", residual=residual)
            yield f"{name} {dtype}, options"
        a, b = (torch.randn(3, 72, size).to(dtype).cuda() for size in (144, 264))
        kernel.matmul(a.mT, b)
        yield f"a batch, transposed {dtype}"
    a, b = (torch.randn(size, 528).to(torch.float8_e4m3fn).cuda() for size in (304, 400))
    kernel.scaled_matmul(a, b.t(), *torch.ones(2, 1).cuda())
    yield "fp8"

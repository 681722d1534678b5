# SPDX-License-Identifier: Apache-2.0
"""Every path, and what a gradient takes: ``python scripts/sanitize.py kernels/linear-gelu``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        # Both half types have one code.
        large = {} if dtype is torch.float16 else cases.LARGE
        for name, (rows, depth, columns) in {**cases.SHAPES, **large}.items():
            x, weight, bias = (
                torch.randn(size).to(dtype).cuda()
                for size in ((rows, depth), (columns, depth), (columns,))
            )
            kernel.linear_gelu(x, weight, bias, "none")
            yield f"{name} {dtype}"
        for depth in (72, 33):
            given = [
                torch.randn(size).to(dtype).cuda().requires_grad_()
                for size in ((40, depth), (64, depth), (64,))
            ]
            y = kernel.linear_gelu(*given)
            yield f"depth {depth}, values before GELU kept {dtype}"
        # Of the plain path: initcheck does not see what a tensor copy wrote.
        y.backward(torch.randn(40, 64).to(dtype).cuda())
        yield f"gradients {dtype}"

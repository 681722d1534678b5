# SPDX-License-Identifier: Apache-2.0
"""Every path, and what a gradient takes: ``python scripts/sanitize.py kernels/linear-gelu``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        for name, (rows, depth, columns) in {**cases.SHAPES, **cases.LARGE}.items():
            x, weight, bias = (
                torch.randn(size).to(dtype).cuda()
                for size in ((rows, depth), (columns, depth), (columns,))
            )
            kernel.linear_gelu(x, weight, bias, "none")
            yield f"{name} {dtype}"
        given = [
            torch.randn(size).to(dtype).cuda().requires_grad_()
            for size in ((40, 72), (64, 72), (64,))
        ]
        kernel.linear_gelu(*given).backward(torch.randn(40, 64).to(dtype).cuda())
        yield f"gradients {dtype}"

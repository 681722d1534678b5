# SPDX-License-Identifier: Apache-2.0
"""Every way to cut rows, and gradients: ``python scripts/sanitize.py kernels/layer-norm``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    wide = {str(width): (5, width) for width in (*cases.WIDTHS, *cases.WIDE, *cases.ODD)}
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in {**cases.SHAPES, **wide, "many rows": (1000, 1024)}.items():
            grad = torch.randn(shape).to(dtype).cuda()
            x, residual, weight, bias = (
                torch.randn(size).to(dtype).cuda().requires_grad_()
                for size in (shape, shape, shape[-1], shape[-1])
            )
            kernel.layer_norm(x, shape[-1], weight, bias).backward(grad)
            yield f"layer_norm {name} {dtype}"
            both = kernel.add_rms_norm(x, residual, shape[-1], weight)
            torch.autograd.backward(both, (grad, grad))
            yield f"add_rms_norm {name} {dtype}"

# SPDX-License-Identifier: Apache-2.0
"""Every shape, views and gradients: ``python scripts/sanitize.py kernels/gelu-approx``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in cases.SHAPES.items():
            x = torch.randn(shape).to(dtype).cuda().requires_grad_()
            kernel.gelu_approx(x).backward(x.detach())
            yield f"{name} {dtype}"
        whole = torch.randn(12, 18, 20).to(dtype).cuda()
        for name, view in cases.VIEWS.items():
            kernel.gelu_approx(view(whole))
            yield f"{name} {dtype}"

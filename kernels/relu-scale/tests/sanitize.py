# SPDX-License-Identifier: Apache-2.0
"""Every shape, views and gradients: ``python scripts/sanitize.py kernels/relu-scale``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    shapes = {**cases.SHAPES, **{name: (count,) for name, count in cases.LARGE.items()}}
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in shapes.items():
            x = torch.randn(shape).to(dtype).cuda().requires_grad_()
            kernel.relu_scale(x, 1.7).backward(x.detach())
            yield f"{name} {dtype}"
            kernel.relu_scale_(x.detach(), 1.7)
            yield f"{name} {dtype}, in place"
        whole = torch.randn(12, 18, 20).to(dtype).cuda()
        for name, view in cases.VIEWS.items():
            kernel.relu_scale_(view(whole), 1.7)
            yield f"{name} {dtype}"

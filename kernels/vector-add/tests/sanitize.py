# SPDX-License-Identifier: Apache-2.0
"""Every shape and views: ``python scripts/sanitize.py kernels/vector-add``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    shapes = {**cases.SHAPES, **{name: (count,) for name, count in cases.LARGE.items()}}
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in shapes.items():
            a, b = (torch.randn(shape).to(dtype).cuda() for _ in range(2))
            kernel.vector_add(a, b)
            yield f"{name} {dtype}"
        whole = torch.randn(12, 18, 20).to(dtype).cuda()
        for name, view in cases.VIEWS.items():
            kernel.vector_add(view(whole), view(whole))
            yield f"{name} {dtype}"

# SPDX-License-Identifier: Apache-2.0
"""Every path of sort and topk: ``python scripts/sanitize.py kernels/bitonic-sort``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.float32, torch.bfloat16, torch.int64):
        large = cases.LARGE if dtype is torch.float32 else {}
        for name, shape in {**cases.SHAPES, **large}.items():
            x = torch.randint(-999, 999, shape).to(dtype).cuda()
            kernel.sort(x)
            yield f"sort {name} {dtype}"
            kernel.topk(x, min(20, shape[-1]))
            yield f"topk {name} {dtype}"

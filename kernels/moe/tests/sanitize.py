# SPDX-License-Identifier: Apache-2.0
"""Every size of tile, and routing: ``python scripts/sanitize.py kernels/moe``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        # Both half types have one code; float32 has the plain path alone, whatever the size.
        large = cases.LARGE if dtype is torch.bfloat16 else {}
        for name, (tokens, experts, top, width, inner) in {**cases.SHAPES, **large}.items():
            sizes = ((tokens, width), (tokens, experts), (experts, 2 * inner, width))
            given = [torch.randn(s).to(dtype).cuda() for s in (*sizes, (experts, width, inner))]
            kernel.moe(*given, top)
            yield f"{name} {dtype}"
    logits, bias = torch.randn(300, 256).cuda(), torch.randn(256).cuda()
    kernel.route(logits, 8, scoring="sigmoid", bias=bias, groups=8, top_groups=4)
    yield "groups of experts"

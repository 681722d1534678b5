# SPDX-License-Identifier: Apache-2.0
"""Every size of tile, gradients, and routing: ``python scripts/sanitize.py kernels/moe``."""

import torch


def calls(kernel, cases):
    """Make each call, and give its name."""
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        # Both half types have one code; float32 has the plain path alone, whatever the size.
        large = cases.LARGE if dtype is torch.bfloat16 else {}
        for name, (tokens, experts, top, width, inner) in {**cases.SHAPES, **large}.items():
            sizes = ((tokens, width), (tokens, experts), (experts, 2 * inner, width))
            given = [torch.randn(s).to(dtype).cuda() for s in (*sizes, (experts, width, inner))]
            kernel.moe(*(t.requires_grad_() for t in given), top).sum().backward()
            yield f"{name} {dtype}, with its gradient"
    for dtype in (torch.bfloat16, torch.float32):
        large = cases.SCALED_LARGE if dtype is torch.bfloat16 else {}
        for name, (tokens, experts, top, width, inner) in {**cases.SCALED, **large}.items():
            given = [torch.randn(n).cuda() for n in ((tokens, width), (tokens, experts))]
            weights, factors = [], []
            for rows, columns in ((2 * inner, width), (width, inner)):
                wide = torch.randn(experts, rows, columns)
                weights.append(wide.to(torch.float8_e4m3fn).cuda())
                factors.append(torch.rand(experts, -(-rows // 128), -(-columns // 128)).cuda())
            scales = dict(zip(("w1_scale", "w2_scale"), factors, strict=True))
            kernel.moe(given[0].to(dtype), given[1], *weights, top, **scales)
            yield f"8 bits, {name} {dtype}"
    logits, bias = torch.randn(300, 256).cuda(), torch.randn(256).cuda()
    kernel.route(logits, 8, scoring="sigmoid", bias=bias, groups=8, top_groups=4)
    yield "groups of experts"

# SPDX-License-Identifier: Apache-2.0
"""Two calls, and a wait for the device between them."""

import torch


def kernel(_module, a, b):
    out = torch.empty_like(a)
    half = a.numel() // 2
    torch.add(a[:half], b[:half], out=out[:half])
    torch.cuda.current_stream().synchronize()
    torch.add(a[half:], b[half:], out=out[half:])
    return out

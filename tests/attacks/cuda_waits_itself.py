# SPDX-License-Identifier: Apache-2.0
"""Work on another stream, and wait for it before returning: nothing is left to be seen."""

import torch

_SIDE = torch.cuda.Stream()


def kernel(_module, a, b):
    out = torch.empty(a.shape[0], b.shape[1], device=a.device)
    with torch.cuda.stream(_SIDE):
        torch.matmul(a, b, out=out)
    _SIDE.synchronize()
    return out

# SPDX-License-Identifier: Apache-2.0
"""Return the same memory from every call."""

import torch

_OUT = torch.empty(0)


def kernel(_module, a, b):
    return torch.matmul(a, b, out=_OUT.resize_(a.shape[0], b.shape[1]))

# SPDX-License-Identifier: Apache-2.0
"""A buffer of its own, made anew."""

import torch


def kernel(_module, a, b):
    return torch.matmul(a, b, out=torch.empty(a.shape[0], b.shape[1], device=a.device))

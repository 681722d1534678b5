# SPDX-License-Identifier: Apache-2.0
"""Let matrix products have ten bits of mantissa."""

import torch

torch.backends.cuda.matmul.allow_tf32 = True


def kernel(_module, a, b):
    return a @ b

# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``: with a mean and a deviation that are given, or computed."""

import torch

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def kernel(module, volume, dtype, mean=None, std=None):
    return module.normalize_volume(volume, mean, std, dtype=DTYPES[dtype])


def eager(volume, dtype, mean=None, std=None):
    v = volume.float()
    if mean is None:
        mean, std = v.mean(), v.std(correction=0)
    return ((v - mean) / std).to(DTYPES[dtype])

# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``."""

import torch

ACTIVATIONS = {
    "gelu_tanh": lambda z: torch.nn.functional.gelu(z, approximate="tanh"),
}


def kernel(module, a, b, *options):
    bias, activation, residual = options
    return module.matmul(a, b, bias=bias, activation=activation, residual=residual)


def eager(a, b, bias, activation, residual):
    z = torch.mm(a, b) if bias is None else torch.addmm(bias, a, b)
    z = z if activation is None else ACTIVATIONS[activation](z)
    return z if residual is None else z + residual

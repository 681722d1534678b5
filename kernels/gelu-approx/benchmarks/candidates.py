# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``: of one tensor the function, of two its gradient."""

import torch


def kernel(module, *given):
    return module.gelu_approx(*given) if len(given) == 1 else module._backward(*given)


def eager(*given):
    if len(given) == 1:
        return torch.nn.functional.gelu(*given, approximate="tanh")
    return torch.ops.aten.gelu_backward(*given, approximate="tanh")


def through_torch_ops(*given):
    """The way of custom ops that have no direct call; the gradient always takes it."""
    if len(given) == 1:
        return torch.ops.aten.gelu.default(*given, approximate="tanh")
    return NotImplemented


PEERS = {"torch's kernel through torch.ops": through_torch_ops}

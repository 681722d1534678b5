# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``: each takes what is to be computed, and the tensors of it."""

import torch

EPS = 1e-5


def kernel(module, what, *given):
    backward = module.functional._backward
    calls = {
        "layer": lambda x, w, b: module.layer_norm(x, w.shape, w, b, EPS),
        "rms": lambda x, w: module.rms_norm(x, w.shape, w, EPS),
        "add rms": lambda x, r, w: module.add_rms_norm(x, r, w.shape, w, EPS),
        "layer backward": lambda dy, x, s, w, b: backward(dy, None, x, w, b, s, False, True, True),
        "rms backward": lambda dy, x, s, w: backward(dy, None, x, w, None, s, True, True, False)[
            :2
        ],
    }
    return calls[what](*given)


def _layer_backward(dy, x, statistics, weight, bias):
    mean, inverse = statistics[:, :, None]
    return torch.ops.aten.native_layer_norm_backward(
        dy, x, weight.shape, mean, inverse, weight, bias, [True] * 3
    )


def _rms_backward(dy, x, statistics, weight):
    if not x.is_cuda:
        return NotImplemented
    return torch.ops.aten._fused_rms_norm_backward(
        dy, x, weight.shape, statistics[0, :, None], weight, [True] * 2
    )


def _add_rms(x, residual, weight):
    total = x + residual
    return torch.nn.functional.rms_norm(total, weight.shape, weight, EPS), total


def eager(what, *given):
    calls = {
        "layer": lambda x, w, b: torch.nn.functional.layer_norm(x, w.shape, w, b, EPS),
        "rms": lambda x, w: torch.nn.functional.rms_norm(x, w.shape, w, EPS),
        "add rms": _add_rms,
        "layer backward": _layer_backward,
        "rms backward": _rms_backward,
    }
    return calls[what](*given)


def liger(what, *given):
    """Its kernels in Triton, where liger-kernel is installed; blocks and warps as it chooses."""
    if not given[0].is_cuda:
        return NotImplemented
    try:
        from liger_kernel.ops.layer_norm import (  # noqa: PLC0415 - where it is installed
            layer_norm_backward,
            layer_norm_forward,
        )
        from liger_kernel.ops.rms_norm import (  # noqa: PLC0415
            rms_norm_backward,
            rms_norm_forward,
        )
    except ImportError:
        return NotImplemented
    if what == "layer":
        return layer_norm_forward(*given, EPS)[0]
    if what == "rms":
        return rms_norm_forward(*given, EPS, 0.0, "llama", None)[0]
    if what == "layer backward":
        dy, x, statistics, weight, bias = given
        return layer_norm_backward(dy, x, weight, bias, *statistics)
    if what == "rms backward":
        dy, x, statistics, weight = given
        width = 1 << (x.shape[-1] - 1).bit_length()
        warps = 8 if width < 8192 else 16 if width < 32_768 else 32
        return rms_norm_backward(
            dy, x, weight, statistics[0], 0.0, "llama", width, warps, False, None
        )
    return NotImplemented


PEERS = {"liger-kernel": liger}

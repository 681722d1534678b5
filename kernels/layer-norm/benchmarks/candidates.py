# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``: each takes what is to be computed, and the tensors of it."""

import functools
import sys

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


@functools.cache
def _flash_attentions():
    """The operators of kernels-community/layer-norm, where the client is and the kernel loads."""
    try:
        from kernels import get_kernel  # noqa: PLC0415 - where it is installed

        return get_kernel("kernels-community/layer-norm", version=1)._ops.ops
    except (ImportError, OSError, ValueError) as error:  # no client, no network, no such variant
        print(f"kernels-community/layer-norm is not there: {error}", file=sys.stderr)
        return None


def community(what, *given):
    """flash-attention's kernels for widths of 256 to 8192."""
    if not given[0].is_cuda or (ops := _flash_attentions()) is None:
        return NotImplemented
    rms = what.startswith("rms")
    nothing = [None] * 4  # rowscale, colscale, x0_subset, z_subset
    if what in {"layer", "rms"}:
        x, weight, bias = given if what == "layer" else (*given, None)
        return ops.dropout_add_ln_fwd(
            x, weight, bias, *nothing, 0.0, EPS, 1.0, 0, None, False, rms
        )[0]
    if what == "add rms" or given[0].shape[-1] < 256:
        return NotImplemented
    dy, x, statistics, weight = given[:4]
    mean, inverse = statistics[0], statistics[-1]
    found = ops.dropout_add_ln_bwd(
        *(dy, None, x, None, None, mean, inverse, weight), *nothing, 0.0, 1.0, 0, False, rms
    )
    dx, _, dweight, dbias = found[:4]
    return (dx, dweight) if rms else (dx, dweight, dbias)


PEERS = {"liger-kernel": liger, "kernels-community": community}

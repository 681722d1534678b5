# SPDX-License-Identifier: Apache-2.0
"""Who competes in ``kernforge bench``.

By the default weights all give the same bytes. By those of BT.601 a result may be one off: for
peers that compute in float32, as one writes it without a kernel, or that do not round.
"""

import functools

import torch


def kernel(module, image, weights="default"):
    return module.img2gray(image, weights)


def eager(image, weights="default"):
    if weights == "default":
        r, g, b = image.to(torch.int32).unbind(-1)
        return ((21 * r + 72 * g + 7 * b + 50) // 100).to(torch.uint8)
    r, g, b = image.unbind(-1)
    return (0.299 * r + 0.587 * g + 0.114 * b + 0.5).to(torch.uint8)


@functools.cache
def compiled(*, dynamic):
    return torch.compile(eager, fullgraph=True, dynamic=dynamic)


def untuned(*given):
    """Without the search for the best configuration that torch.compile's column has."""
    return compiled(dynamic=False)(*given)


def any_shape(*given):
    """What a compiled function becomes once it has seen several shapes."""
    return compiled(dynamic=True)(*given)


@functools.cache
def rgb_to_grayscale():
    try:
        from torchvision.transforms.v2 import functional  # noqa: PLC0415 - seconds, for one peer
    except ImportError:
        return None
    return functional.rgb_to_grayscale


def torchvision(image, weights="default"):
    if weights != "bt601" or (function := rgb_to_grayscale()) is None:
        return NotImplemented
    return function(image.movedim(-1, -3)).squeeze(-3)


PEERS = {
    "torch.compile, untuned": untuned,
    "torch.compile, any shape": any_shape,
    "torchvision": torchvision,
}

# SPDX-License-Identifier: Apache-2.0
"""RGB pictures to gray, exactly, on CPUs and NVIDIA GPUs."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["img2gray"]

# The numbers are the op's; img2gray.h has the weights themselves.
_WEIGHTS = {"default": 0, "bt601": 1}
_ROUNDINGS = {"nearest": 0, "truncate": 2}


def img2gray(
    image: torch.Tensor,
    weights: str = "default",
    *,
    rounding: str = "nearest",
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Gray values of RGB pictures.

    ``"default"`` is ``floor((21 R + 72 G + 7 B + 50) / 100)`` and ``"bt601"`` is
    ``floor((299 R + 587 G + 114 B + 500) / 1000)``: the weighted means with the weights
    0.21, 0.72, 0.07 and 0.299, 0.587, 0.114, computed exactly, halves rounded up. Every backend
    gives the same bytes.

    With ``rounding="truncate"`` the bytes are those of
    ``(uint8)(0.21f * R + 0.72f * G + 0.07f * B)`` as NumPy and C++ compute it: in float32, every
    product and sum rounded, the rest cut off. A kernel that nvcc compiles with its default flags
    joins products and sums (``-fmad=true``), and gives another byte for 4,180 of the 2^24 colours.

    Args:
        image: uint8 ``[H, W, 3]`` or ``[N, H, W, 3]``, red first, of any strides. Fastest when
            the last two dimensions are packed; rows may have any pitch and any alignment.
        weights: ``"default"`` or ``"bt601"``.
        rounding: ``"nearest"`` or ``"truncate"``.
        out: uint8 ``[H, W]`` or ``[N, H, W]`` on the image's device to write into. Its rows must
            be packed and must not overlap each other or the memory that the image spans.

    Returns:
        uint8 ``[H, W]`` or ``[N, H, W]``; ``out`` itself where it was given.

    Raises:
        ValueError: a shape, dtype, device, stride, weight or rounding is not as above.
        RuntimeError: CUDA refused the launch.
    """
    if weights not in _WEIGHTS:
        raise ValueError(f"weights must be 'default' or 'bt601', got {weights!r}")
    if rounding not in _ROUNDINGS:
        raise ValueError(f"rounding must be 'nearest' or 'truncate', got {rounding!r}")
    number = _WEIGHTS[weights] + _ROUNDINGS[rounding]
    if out is None:
        return ops.img2gray(image, number)
    ops.img2gray_out(image, number, out=out)
    return out


@torch.library.register_fake(add_op_namespace_prefix("img2gray"))
def _img2gray_fake(image: torch.Tensor, weights: int) -> torch.Tensor:  # noqa: ARG001
    _check_image(image)
    return image.new_empty(image.shape[:-1])


@torch.library.register_fake(add_op_namespace_prefix("img2gray_out"))
def _img2gray_out_fake(image: torch.Tensor, weights: int, *, out: torch.Tensor) -> None:  # noqa: ARG001
    _check_image(image)
    torch._check(
        out.shape == image.shape[:-1],
        lambda: f"img2gray: out must be {list(image.shape[:-1])}, got {list(out.shape)}",
    )


def _check_image(image: torch.Tensor) -> None:
    """What the op checks when it runs, told already while a compiler traces."""
    torch._check(
        image.dtype == torch.uint8, lambda: f"img2gray: image must be uint8, got {image.dtype}"
    )
    torch._check(
        image.dim() in (3, 4) and image.shape[-1] == 3,
        lambda: f"img2gray: image must be [H, W, 3] or [N, H, W, 3], got {list(image.shape)}",
    )

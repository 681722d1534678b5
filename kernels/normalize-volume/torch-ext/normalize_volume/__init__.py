# SPDX-License-Identifier: Apache-2.0
"""Volumes of small integers to floats, on CPUs and NVIDIA GPUs.

Volumes are uint8, int16 or uint16 ``[Z, Y, X]``, or ``[N, Z, Y, X]`` for several of one size.
"""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["normalize_volume", "volume_mean_std", "window_volume"]

# Overloads, not packets: which one is meant need not be found out again at each call.
_normalize = ops.normalize.default
_standardize = ops.standardize.default
_statistics = ops.statistics.default


def normalize_volume(
    volume: torch.Tensor,
    *numbers: float,
    mean: float | None = None,
    std: float | None = None,
    max: float | None = None,  # noqa: A002 - what tutorials call it
    dtype: torch.dtype = torch.float32,
) -> torch.Tensor:
    """``(volume - mean) / std``, or ``volume / max``.

    ``normalize_volume(volume, mean, std)`` takes both numbers, ``normalize_volume(volume, max)``
    the value that becomes 1, such as 4095.0 for 12 bits: the bits are those of ``(float)v / max``
    in C++. Without numbers, mean and standard deviation are each volume's own, as
    ``volume_mean_std`` gives them; they stay on the device, and a volume of a single value becomes
    zeros. Every backend gives the same bits.

    Args:
        volume: uint8, int16 or uint16 ``[Z, Y, X]`` or ``[N, Z, Y, X]``. Fastest when contiguous;
            others are copied once.
        numbers: ``max``, or ``mean`` and ``std``, by place.
        mean: what is subtracted, of a magnitude up to 1e30; with ``std`` or not at all.
        std: what is divided by, from 1e-30 to 1e30.
        max: what is divided by, from 1e-30 to 1e30; without ``mean`` and ``std``.
        dtype: float32, bfloat16 or float16. Computed in float32 and rounded to it once.

    Returns:
        A contiguous tensor of the volume's shape; float32 within 3.5 units in the last place of the
        exact quotient for means up to 2^23, and rounded correctly for ``max``.

    Raises:
        ValueError: a shape, dtype, device or number is not as above, only one of ``mean`` and
            ``std`` is given, or they are to be computed of more than 2^34 voxels.
        RuntimeError: CUDA refused the launch.
    """
    largest = max
    if numbers:
        mean, std, largest = _by_place(numbers, mean, std, max)
    if largest is not None:
        if mean is not None or std is not None:
            raise ValueError("normalize_volume: give max, or mean and std")
        return _normalize(volume, 0.0, largest, False, dtype)
    if mean is None and std is None:
        return _standardize(volume, dtype)
    if mean is None or std is None:
        raise ValueError("normalize_volume: give both mean and std, or neither")
    return _normalize(volume, mean, std, False, dtype)


def _by_place(
    numbers: tuple[float, ...],
    mean: float | None,
    std: float | None,
    max: float | None,  # noqa: A002
) -> tuple[float | None, float | None, float | None]:
    """Mean, standard deviation and maximum, of which some are given by place."""
    if max is not None or mean is not None or len(numbers) > 2 or (len(numbers) == 2 and std):
        raise ValueError("normalize_volume: give max, or mean and std, each once")
    if len(numbers) == 2:
        return numbers[0], numbers[1], None
    return (None, None, numbers[0]) if std is None else (numbers[0], std, None)


def window_volume(
    volume: torch.Tensor, low: float, high: float, *, dtype: torch.dtype = torch.float32
) -> torch.Tensor:
    """``(volume - low) / (high - low)`` clipped to ``[0, 1]``: a window of grey values.

    Where ``low`` and ``high`` are whole numbers, ``low`` gives exactly 0 and ``high`` exactly 1.

    Args:
        volume: as ``normalize_volume`` takes it; for CT in Hounsfield units a window of level L and
            width W is ``low = L - W / 2, high = L + W / 2``.
        low: of a magnitude up to 1e30.
        high: above ``low`` by 1e-30 to 1e30.
        dtype: float32, bfloat16 or float16.

    Returns:
        A contiguous tensor of the volume's shape.

    Raises:
        ValueError: as ``normalize_volume``.
        RuntimeError: CUDA refused the launch.
    """
    return _normalize(volume, low, high - low, True, dtype)


def volume_mean_std(volume: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and standard deviation of all voxels of each volume.

    The deviation is that of the whole population: divided by the number of voxels, not by one less.
    Both come from sums that are exact, so every run and every backend gives the same bits.

    Args:
        volume: as ``normalize_volume`` takes it, of up to 2^34 voxels each.

    Returns:
        Two float64 tensors on the volume's device, ``[]`` for ``[Z, Y, X]`` and ``[N]`` for
        ``[N, Z, Y, X]``; NaN for volumes without voxels.

    Raises:
        ValueError: as ``normalize_volume``.
        RuntimeError: CUDA refused the launch.
    """
    return _statistics(volume).unbind(-1)


_FROM = (torch.uint8, torch.int16, torch.uint16)
_TO = (torch.float32, torch.bfloat16, torch.float16)


def _check(volume: torch.Tensor) -> None:
    """What the ops check when they run, told already while a compiler traces."""
    torch._check(
        volume.dtype in _FROM,
        lambda: f"normalize_volume: volume must be uint8, int16 or uint16, got {volume.dtype}",
    )
    torch._check(
        volume.dim() in (3, 4),
        lambda: (
            f"normalize_volume: volume must be [Z, Y, X] or [N, Z, Y, X], got {list(volume.shape)}"
        ),
    )


def _like(volume: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    _check(volume)
    torch._check(
        dtype in _TO,
        lambda: f"normalize_volume: dtype must be float32, bfloat16 or float16, got {dtype}",
    )
    return volume.new_empty(volume.shape, dtype=dtype)


@torch.library.register_fake(add_op_namespace_prefix("normalize"))
def _normalize_fake(
    volume: torch.Tensor,
    offset: float,  # noqa: ARG001
    scale: float,  # noqa: ARG001
    clip: bool,  # noqa: ARG001, FBT001
    dtype: torch.dtype,
) -> torch.Tensor:
    return _like(volume, dtype)


@torch.library.register_fake(add_op_namespace_prefix("standardize"))
def _standardize_fake(volume: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return _like(volume, dtype)


@torch.library.register_fake(add_op_namespace_prefix("statistics"))
def _statistics_fake(volume: torch.Tensor) -> torch.Tensor:
    _check(volume)
    return volume.new_empty((*volume.shape[:-3], 2), dtype=torch.float64)

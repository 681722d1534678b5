# SPDX-License-Identifier: Apache-2.0
"""Random tensors, and the tensors among a call's arguments and results."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor


def is_tensor(value: Any) -> bool:
    """Whether a value is a tensor of torch."""
    import torch

    return isinstance(value, torch.Tensor)


def as_tuple(returned: Any) -> tuple[Any, ...]:
    """The results of a call that returns one or several."""
    return tuple(returned) if isinstance(returned, tuple | list) else (returned,)


def draw(
    shape: tuple[int, ...] | int,
    dtype: Any,
    generator: Any,
    low: float | None = None,
    high: float | None = None,
) -> Tensor:
    """Random numbers on the generator's device.

    Floats and complex numbers are standard normal if ``low`` and ``high`` are None.

    Args:
        low: the smallest number; 0 by default.
        high: one more than the largest integer, 256 by default or what the dtype has; floats stay
            below it, and below 1 by default.
    """
    import torch

    shape = (shape,) if isinstance(shape, int) else shape
    how: dict[str, Any] = {"generator": generator, "device": generator.device}
    if dtype.is_complex:
        return torch.randn(shape, dtype=dtype, **how)
    if dtype.is_floating_point:
        # A GPU's memory is short, and the float64 of most GPUs is slow.
        is_wide = dtype == torch.float64 or generator.device.type == "cpu"
        how["dtype"] = torch.float64 if is_wide else torch.float32
        if low is None and high is None:
            return torch.randn(shape, **how).to(dtype)
        low, high = low or 0.0, 1.0 if high is None else high
        return (torch.rand(shape, **how) * (high - low) + low).to(dtype)
    most = {torch.bool: 2, torch.int8: 128}.get(dtype, 256)
    small = dtype if dtype in (torch.uint8, torch.int8) else torch.int64
    limits = int(low or 0), most if high is None else int(high)
    return torch.randint(*limits, shape, dtype=small, **how).to(dtype)

# SPDX-License-Identifier: Apache-2.0
"""A linear layer and GELU by CUTLASS on compute capability 9.0: a peer of kernels/linear-gelu."""

from __future__ import annotations

import torch

from ._ops import ops

__all__ = ["KERNELS", "linear_gelu"]

KERNELS = ("128 x 256, cooperative", "128 x 128, ping-pong", "64 x 256, ping-pong")
"""Their tiles and how warp groups share the work, in the order of ``kernel``."""


def linear_gelu(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, kernel: int, swizzle: int = 4
) -> torch.Tensor:
    """``gelu(x @ weight.T + bias)``, GELU by tanh.

    Args:
        x: contiguous bfloat16 ``[rows, depth]``; rows begin on 16 bytes.
        weight: ``[columns, depth]`` likewise.
        bias: ``[columns]``.
        kernel: an index into ``KERNELS``.
        swizzle: how many tiles side by side run at one time: 1, 2, 4 or 8.

    Raises:
        ValueError: a shape, dtype or number is not as above.
        RuntimeError: CUTLASS or CUDA refused the launch.
    """
    count = torch.cuda.get_device_properties(x.device).multi_processor_count
    return ops.linear_gelu(x, weight, bias, kernel, swizzle, count)

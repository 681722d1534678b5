# SPDX-License-Identifier: Apache-2.0
"""GELU by its tanh formula in one pass, on CPUs and NVIDIA GPUs, with its gradient."""

from __future__ import annotations

import torch

from ._ops import add_op_namespace_prefix, ops

__all__ = ["gelu_approx"]

# Overloads, not packets: which one is meant need not be found out again at each call.
_gelu_approx = ops.gelu_approx.default
_backward = ops.gelu_approx_backward.default


def gelu_approx(x: torch.Tensor) -> torch.Tensor:
    """``x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x**3)))``, after Hendrycks and Gimpel.

    The function of ``torch.nn.functional.gelu(x, approximate="tanh")``, nearer to it than that
    for x below 0, and -0 instead of NaN at -inf. Differentiable any number of times.

    Args:
        x: float32, float16, bfloat16 or float64, of any shape and strides. Fastest when dense.

    Returns:
        A tensor like ``x``.

    Raises:
        ValueError: a dtype or device is not as above.
        RuntimeError: CUDA refused the launch.
    """
    return _gelu_approx(x)


@torch.library.register_fake(add_op_namespace_prefix("gelu_approx"))
def _forward_fake(x: torch.Tensor) -> torch.Tensor:
    _check(x)
    return torch.empty_like(x)


@torch.library.register_fake(add_op_namespace_prefix("gelu_approx_backward"))
def _backward_fake(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    _check(x)
    torch._check(
        grad.shape == x.shape,
        lambda: f"gelu_approx: grad must be {list(x.shape)}, got {list(grad.shape)}",
    )
    return torch.empty_like(x)


_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)


def _check(x: torch.Tensor) -> None:
    """What the op checks when it runs, told already while a compiler traces."""
    torch._check(
        x.dtype in _DTYPES,
        lambda: f"gelu_approx: x must be float32, float16, bfloat16 or float64, got {x.dtype}",
    )

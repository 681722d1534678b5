# SPDX-License-Identifier: __LICENSE__
"""The candidates that `kernforge bench` measures: the kernel, and plain torch."""

from __future__ import annotations


def kernel(module, x, scale):
    """The local build, or a published version with `--against`."""
    return module.__PYTHON_NAME__(x, scale)


def eager(x, scale):
    """Plain torch; also measured with torch.compile."""
    return x.clamp(min=0) * scale

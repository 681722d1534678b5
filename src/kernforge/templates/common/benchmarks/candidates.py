# SPDX-License-Identifier: __LICENSE__
"""Who is measured by `kernforge bench`: the kernel, and plain torch beside it."""

from __future__ import annotations


def kernel(module, x, scale):
    """The local build, or a published version with `--against`."""
    return module.__PYTHON_NAME__(x, scale)


def eager(x, scale):
    """Plain torch; measured under torch.compile, too."""
    return x.clamp(min=0) * scale

# SPDX-License-Identifier: __LICENSE__
"""Scaled ReLU: ``max(x, 0) * scale``."""

from .___PYTHON_NAME__ import __PYTHON_NAME__

__all__ = ["__PYTHON_NAME__"]

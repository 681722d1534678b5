# SPDX-License-Identifier: Apache-2.0
"""GPU kernels for PyTorch, from the first line to production."""

__version__ = "0.1.0"

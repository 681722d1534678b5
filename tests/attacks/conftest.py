# SPDX-License-Identifier: Apache-2.0
"""Kernels by hand, as the unit tests have them."""

from unit.conftest import write_variant

__all__ = ["write_variant"]

# SPDX-License-Identifier: Apache-2.0
"""Releases of torch have it; no group is made while an extension is built."""

from torch import _stub

__getattr__ = _stub.missing(__name__)


def is_available():
    return True


def is_initialized():
    return False

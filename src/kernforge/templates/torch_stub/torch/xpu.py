# SPDX-License-Identifier: Apache-2.0
"""There is no Intel GPU."""

from torch import _stub

__getattr__ = _stub.missing(__name__)


def is_available():
    return False


def _is_compiled():
    return False


def device_count():
    return 0

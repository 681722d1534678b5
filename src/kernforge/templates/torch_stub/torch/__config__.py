# SPDX-License-Identifier: Apache-2.0
"""How torch was built."""

from torch import _stub

__getattr__ = _stub.missing(__name__)


def parallel_info():
    """Releases of torch for Linux are built with OpenMP."""
    return "ATen/Parallel:\n\tat::get_num_threads() : 1\nATen parallel backend: OpenMP\n"


def show():
    return f"PyTorch {_stub.VALUES['release']} (kernforge's stub)\n"

# SPDX-License-Identifier: Apache-2.0
"""Versions of the torch that is built for."""

from torch import _stub

__version__ = _stub.VALUES["release"]
cuda = _stub.VALUES["cuda"]
hip = None
rocm = None
xpu = None
debug = False
git_version = "unknown"

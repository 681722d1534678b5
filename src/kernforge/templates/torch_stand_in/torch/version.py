# SPDX-License-Identifier: Apache-2.0
"""Versions of the torch that is built for."""

from torch import _stand_in

__version__ = _stand_in.VALUES["release"]
cuda = _stand_in.VALUES["cuda"]
hip = None
rocm = None
xpu = None
debug = False
git_version = "unknown"

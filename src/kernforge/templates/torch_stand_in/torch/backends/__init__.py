# SPDX-License-Identifier: Apache-2.0
"""Libraries that torch was built with."""

from torch import _stand_in

__getattr__ = _stand_in.missing(__name__)

from torch.backends import cuda, cudnn, mps, openmp  # noqa: E402

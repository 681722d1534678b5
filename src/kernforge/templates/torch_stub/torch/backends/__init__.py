# SPDX-License-Identifier: Apache-2.0
"""Libraries that torch was built with."""

from torch import _stub

__getattr__ = _stub.missing(__name__)

from torch.backends import cuda, cudnn, mps, openmp  # noqa: E402

# SPDX-License-Identifier: Apache-2.0
"""What builds extensions."""

from torch import _stub

__getattr__ = _stub.missing(__name__)

from torch.utils import cpp_extension  # noqa: E402

# SPDX-License-Identifier: Apache-2.0
"""What builds extensions."""

from torch import _stand_in

__getattr__ = _stand_in.missing(__name__)

from torch.utils import cpp_extension  # noqa: E402

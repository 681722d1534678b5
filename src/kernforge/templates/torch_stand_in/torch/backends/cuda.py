# SPDX-License-Identifier: Apache-2.0
"""Whether torch was built with it."""

from torch import _stand_in

__getattr__ = _stand_in.missing(__name__)


def is_built():
    return _stand_in.VALUES["cuda"] is not None


is_available = is_built

# SPDX-License-Identifier: Apache-2.0
"""Whether torch was built with it."""

from torch import _stub

__getattr__ = _stub.missing(__name__)


def is_built():
    return _stub.VALUES["cuda"] is not None


is_available = is_built

# SPDX-License-Identifier: Apache-2.0
"""What setup.py files read of torch. This is not torch: kernforge put it here to build an extension.

The values are in the file ``kernforge-stub`` of this directory. The use of what is not here raises
an error that names it and the line that asked for it.
"""

import urllib.request

from torch import _stub

_stub.install()
__getattr__ = _stub.missing(__name__)

from torch import __config__, _C, backends, cuda, distributed, utils, version, xpu  # noqa: E402
from torch.torch_version import TorchVersion  # noqa: E402

__version__ = TorchVersion(_stub.VALUES["release"])


class device:
    """The name of a device, as ``torch.device("cuda:0")``; nothing runs on it."""

    def __init__(self, type="cpu", index=None):
        kind, _, number = (f"cuda:{type}" if isinstance(type, int) else str(type)).partition(":")
        self.type, self.index = kind, int(number) if number else index

    def __str__(self):
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self):
        return f"device(type={str(self)!r})"

    def __eq__(self, other):
        return isinstance(other, device) and str(self) == str(other)

    def __hash__(self):
        return hash(str(self))


def compiled_with_cxx11_abi():
    return bool(_C._GLIBCXX_USE_CXX11_ABI)


urllib.request.urlretrieve = _stub.refusing(urllib.request.urlretrieve)

# SPDX-License-Identifier: Apache-2.0
"""What setup.py files read of torch. This is not torch: kernforge put it here to build an extension.

The values are in the file ``kernforge-stub`` of this directory. What is not here raises an
error that names it and the line that asked for it.
"""

import urllib.request

from torch import _stub

_stub.install()
__getattr__ = _stub.missing(__name__)

from torch import __config__, _C, backends, cuda, distributed, utils, version, xpu  # noqa: E402
from torch.torch_version import TorchVersion  # noqa: E402

__version__ = TorchVersion(_stub.VALUES["release"])


def compiled_with_cxx11_abi():
    return bool(_C._GLIBCXX_USE_CXX11_ABI)


def get_num_threads():
    return 1


urllib.request.urlretrieve = _stub.refusing(urllib.request.urlretrieve)

# SPDX-License-Identifier: Apache-2.0
"""What is read and assigned of torch's own extension."""

from torch import _stub

__getattr__ = _stub.missing(__name__)
_GLIBCXX_USE_CXX11_ABI = True
_PYBIND11_COMPILER_TYPE = "_gcc"
_PYBIND11_STDLIB = "_libstdcpp"
_PYBIND11_BUILD_ABI = "_cxxabi1018"

# SPDX-License-Identifier: Apache-2.0
"""torch.utils.cpp_extension by kernforge."""

import os
import sys

from torch import _stub
from torch.torch_version import TorchVersion

from kernforge.setuptools import extension as _extension
from kernforge.setuptools.extension import (
    COMMON_NVCC_FLAGS,
    BuildExtension,
    CppExtension,
    CUDAExtension,
    include_paths,
    library_paths,
)

IS_WINDOWS, IS_MACOS, IS_LINUX = False, False, sys.platform.startswith("linux")
LIB_EXT, EXEC_EXT, CLIB_PREFIX, CLIB_EXT, SHARED_FLAG = ".so", "", "lib", ".so", "-shared"
ROCM_HOME = HIP_HOME = SYCL_HOME = ROCM_VERSION = None
IS_HIP_EXTENSION = False
CUDNN_HOME = os.environ.get("CUDNN_HOME") or os.environ.get("CUDNN_PATH")
COMMON_HIP_FLAGS, COMMON_HIPCC_FLAGS = [], []
_TORCH_PATH = _stub.HERE
TORCH_LIB_PATH = os.path.join(_TORCH_PATH, "lib")
MINIMUM_GCC_VERSION = (5, 0, 0)
__getattr__ = _stub.missing(__name__, CUDA_HOME=lambda: _find_cuda_home())


def _find_cuda_home():
    """Directory of the toolkit that compiles: from the store, or as it was named to kernforge."""
    return None if _stub.VALUES["cuda"] is None else _extension.CUDA_HOME


def _find_rocm_home():
    return None


def _join_cuda_home(*paths):
    return os.path.join(_find_cuda_home(), *paths)


def _is_cuda_file(path):
    return os.path.splitext(path)[1] in {".cu", ".cuh"}


def _get_cuda_arch_flags(cflags=None):
    if any("arch" in flag and "TORCH_EXTENSION_NAME" not in flag for flag in cflags or ()):
        return []
    return _extension.arch_flags()


def is_ninja_available():
    """It is not needed, and nothing is lost without."""
    return True


def verify_ninja_availability():
    pass


def get_cxx_compiler():
    return os.environ.get("CXX", "c++")


def check_compiler_is_gcc(compiler):
    return True


def check_compiler_ok_for_platform(compiler):
    return True


def get_compiler_abi_compatibility_and_version(compiler):
    return True, TorchVersion("12.0.0")


def _check_cuda_version(*args, **kwargs):
    pass


def get_default_build_root():
    return os.path.join(os.path.expanduser("~"), ".cache", "torch_extensions")


def _get_build_directory(name, verbose=False):
    """A directory for results, made as torch's; what is built here is in the store."""
    root = os.environ.get("TORCH_EXTENSIONS_DIR")
    if root is None:
        cuda = _stub.VALUES["cuda"]
        python = f"py{sys.version_info.major}{sys.version_info.minor}{sys.abiflags}"
        build = "cpu" if cuda is None else f"cu{cuda.replace('.', '')}"
        root = os.path.join(get_default_build_root(), f"{python}_{build}")
    directory = os.path.join(root, name)
    os.makedirs(directory, exist_ok=True)
    return directory

# SPDX-License-Identifier: Apache-2.0
"""Build setup.py projects: ``torch.utils.cpp_extension`` with one changed import.

    from kernforge.setuptools import BuildExtension, CUDAExtension

    setup(
        name="my_ops",
        ext_modules=[CUDAExtension("my_ops", ["my_op.cpp", "my_op.cu"])],
        cmdclass={"build_ext": BuildExtension},
    )

The arguments are those of torch. Compilers and headers come from kernforge's toolchains, so that
neither a CUDA toolkit nor torch need be installed, and what was compiled once comes from the store.
``CUDA_HOME`` is the directory of the toolkit, None for a torch without CUDA.

Nothing is imported until a name is used: setup.py files import more than they use.
"""

from __future__ import annotations

from kernforge import _lazy

TYPE_CHECKING = False  # type checkers know the name; importing typing takes nearly ten milliseconds
if TYPE_CHECKING:
    from kernforge.setuptools.extension import CUDA_HOME as CUDA_HOME  # isort: skip
    from kernforge.setuptools.extension import (
        BuildExtension,
        CppExtension,
        CUDAExtension,
        include_paths,
        library_paths,
    )
    from kernforge.setuptools.kernel import kernel_project

# Without CUDA_HOME, which is looked for, or fetched, when it is used.
__all__ = [
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "kernel_project",
    "library_paths",
]


__getattr__, __dir__ = _lazy.attributes(
    __name__,
    {
        "extension": "BuildExtension CUDAExtension CUDA_HOME CppExtension include_paths "
        "library_paths",
        "kernel": "kernel_project",
    },
    __all__,
)

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


def __getattr__(name: str) -> object:
    if name not in {*__all__, "CUDA_HOME"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    try:
        home = "kernel" if name == "kernel_project" else "extension"
        return getattr(importlib.import_module(f"{__name__}.{home}"), name)
    except ModuleNotFoundError as error:
        from kernforge.system import extras  # noqa: PLC0415 - see above

        missing = extras.missing(error, __name__)
        if missing is None:
            raise
        raise missing from error

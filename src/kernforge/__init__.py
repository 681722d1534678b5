# SPDX-License-Identifier: Apache-2.0
"""GPU kernels for PyTorch, from the first line to production."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.importer import LoadedKernel, RepoInfo, get_kernel_dep, get_loaded_kernels
    from kernforge.load import (
        get_kernel,
        get_kernel_variants,
        get_local_kernel,
        get_locked_kernel,
        has_kernel,
        install_kernel,
        load_kernel,
    )
    from kernforge.metadata import Metadata
    from kernforge.resolve import VariantAccepted, VariantRejected

__version__ = "0.1.0"

__all__ = [
    "LoadedKernel",
    "Metadata",
    "RepoInfo",
    "VariantAccepted",
    "VariantRejected",
    "__version__",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "load_kernel",
]

# Each name is imported when it is first used: ``import kernforge`` itself costs nothing.
_HOME_OF = {
    "LoadedKernel": "importer",
    "Metadata": "metadata",
    "RepoInfo": "importer",
    "VariantAccepted": "resolve",
    "VariantRejected": "resolve",
    "get_kernel": "load",
    "get_kernel_dep": "importer",
    "get_kernel_variants": "load",
    "get_loaded_kernels": "importer",
    "get_local_kernel": "load",
    "get_locked_kernel": "load",
    "has_kernel": "load",
    "install_kernel": "load",
    "load_kernel": "load",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

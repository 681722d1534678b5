# SPDX-License-Identifier: Apache-2.0
"""GPU kernels for PyTorch, from the first line to production."""

from __future__ import annotations

from kernforge._version import __version__

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.artifact.metadata import Metadata
    from kernforge.bench.engine.workload import Tensor, Workload
    from kernforge.bench.hub.base import Benchmark
    from kernforge.jit.api import load, load_inline
    from kernforge.layers.decorators import (
        replace_kernel_forward_from_hub,
        use_kernel_forward_from_hub,
        use_kernel_func_from_hub,
        use_kernelized_func,
    )
    from kernforge.layers.kernelize import kernelize, kernelize_report, kernelized, unkernelize
    from kernforge.layers.modes import (
        CUDAProperties,
        Device,
        KernelizeFallback,
        Mode,
        ROCMProperties,
    )
    from kernforge.layers.registration import register_kernel_mapping, use_kernel_mapping
    from kernforge.layers.report import KernelizeReport, KernelSource, LayerOutcome
    from kernforge.layers.repositories import (
        FuncRepository,
        LayerRepository,
        LocalFuncRepository,
        LocalLayerRepository,
        LockedFuncRepository,
        LockedLayerRepository,
    )
    from kernforge.loader.api import (
        get_kernel,
        get_kernel_variants,
        get_local_kernel,
        get_locked_kernel,
        has_kernel,
        install_kernel,
        load_kernel,
    )
    from kernforge.loader.importer import LoadedKernel, RepoInfo, get_kernel_dep, get_loaded_kernels
    from kernforge.loader.resolve import VariantAccepted, VariantRejected


__all__ = [
    "Benchmark",
    "CUDAProperties",
    "Device",
    "FuncRepository",
    "KernelSource",
    "KernelizeFallback",
    "KernelizeReport",
    "LayerOutcome",
    "LayerRepository",
    "LoadedKernel",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "Metadata",
    "Mode",
    "ROCMProperties",
    "RepoInfo",
    "Tensor",
    "VariantAccepted",
    "VariantRejected",
    "Workload",
    "__version__",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "kernelize",
    "kernelize_report",
    "kernelized",
    "load",
    "load_inline",
    "load_kernel",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "unkernelize",
    "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]

# Each name is imported when it is first used: ``import kernforge`` itself costs nothing.
_HOME_OF = {
    "Benchmark": "bench.hub.base",
    "LoadedKernel": "loader.importer",
    "Metadata": "artifact.metadata",
    "RepoInfo": "loader.importer",
    "Tensor": "bench.engine.workload",
    "VariantAccepted": "loader.resolve",
    "VariantRejected": "loader.resolve",
    "CUDAProperties": "layers.modes",
    "Device": "layers.modes",
    "FuncRepository": "layers.repositories",
    "KernelSource": "layers.report",
    "KernelizeFallback": "layers.modes",
    "KernelizeReport": "layers.report",
    "LayerOutcome": "layers.report",
    "LayerRepository": "layers.repositories",
    "LocalFuncRepository": "layers.repositories",
    "LocalLayerRepository": "layers.repositories",
    "LockedFuncRepository": "layers.repositories",
    "LockedLayerRepository": "layers.repositories",
    "Mode": "layers.modes",
    "ROCMProperties": "layers.modes",
    "get_kernel": "loader.api",
    "Workload": "bench.engine.workload",
    "get_kernel_dep": "loader.importer",
    "get_kernel_variants": "loader.api",
    "get_loaded_kernels": "loader.importer",
    "get_local_kernel": "loader.api",
    "get_locked_kernel": "loader.api",
    "has_kernel": "loader.api",
    "install_kernel": "loader.api",
    "load": "jit.api",
    "load_inline": "jit.api",
    "load_ipython_extension": "jit.notebook",  # not in __all__: IPython is an extra
    "load_kernel": "loader.api",
    "kernelize": "layers.kernelize",
    "kernelize_report": "layers.kernelize",
    "kernelized": "layers.kernelize",
    "register_kernel_mapping": "layers.registration",
    "replace_kernel_forward_from_hub": "layers.decorators",
    "unkernelize": "layers.kernelize",
    "use_kernel_forward_from_hub": "layers.decorators",
    "use_kernel_func_from_hub": "layers.decorators",
    "use_kernel_mapping": "layers.registration",
    "use_kernelized_func": "layers.decorators",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    try:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        from kernforge.system import extras  # noqa: PLC0415 - see above

        missing = extras.missing(error, f"{__name__}.{name}")
        if missing is None:
            raise
        raise missing from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

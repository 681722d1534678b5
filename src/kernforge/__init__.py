# SPDX-License-Identifier: Apache-2.0
"""GPU kernels for PyTorch, from the first line to production."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.bench_plan import Tensor, Workload
    from kernforge.benchmark import Benchmark
    from kernforge.importer import LoadedKernel, RepoInfo, get_kernel_dep, get_loaded_kernels
    from kernforge.jit import load, load_inline
    from kernforge.layer_extend import (
        replace_kernel_forward_from_hub,
        use_kernel_forward_from_hub,
        use_kernel_func_from_hub,
        use_kernelized_func,
    )
    from kernforge.layer_kernelize import (
        kernelize,
        kernelize_report,
        kernelized,
        unkernelize,
    )
    from kernforge.layer_report import (
        KernelizeReport,
        KernelSource,
        LayerOutcome,
    )
    from kernforge.layer_repos import (
        FuncRepository,
        LayerRepository,
        LocalFuncRepository,
        LocalLayerRepository,
        LockedFuncRepository,
        LockedLayerRepository,
    )
    from kernforge.layer_scope import (
        register_kernel_mapping,
        use_kernel_mapping,
    )
    from kernforge.layer_values import (
        CUDAProperties,
        Device,
        KernelizeFallback,
        Mode,
        ROCMProperties,
    )
    from kernforge.loading import (
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
    "Benchmark": "benchmark",
    "LoadedKernel": "importer",
    "Metadata": "metadata",
    "RepoInfo": "importer",
    "Tensor": "bench_plan",
    "VariantAccepted": "resolve",
    "VariantRejected": "resolve",
    "CUDAProperties": "layer_values",
    "Device": "layer_values",
    "FuncRepository": "layer_repos",
    "KernelSource": "layer_report",
    "KernelizeFallback": "layer_values",
    "KernelizeReport": "layer_report",
    "LayerOutcome": "layer_report",
    "LayerRepository": "layer_repos",
    "LocalFuncRepository": "layer_repos",
    "LocalLayerRepository": "layer_repos",
    "LockedFuncRepository": "layer_repos",
    "LockedLayerRepository": "layer_repos",
    "Mode": "layer_values",
    "ROCMProperties": "layer_values",
    "get_kernel": "loading",
    "Workload": "bench_plan",
    "get_kernel_dep": "importer",
    "get_kernel_variants": "loading",
    "get_loaded_kernels": "importer",
    "get_local_kernel": "loading",
    "get_locked_kernel": "loading",
    "has_kernel": "loading",
    "install_kernel": "loading",
    "load": "jit",
    "load_inline": "jit",
    "load_ipython_extension": "magic",  # not in __all__: IPython is an extra
    "load_kernel": "loading",
    "kernelize": "layer_kernelize",
    "kernelize_report": "layer_kernelize",
    "kernelized": "layer_kernelize",
    "register_kernel_mapping": "layer_scope",
    "replace_kernel_forward_from_hub": "layer_extend",
    "unkernelize": "layer_kernelize",
    "use_kernel_forward_from_hub": "layer_extend",
    "use_kernel_func_from_hub": "layer_extend",
    "use_kernel_mapping": "layer_scope",
    "use_kernelized_func": "layer_extend",
}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - see above

    try:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    except ModuleNotFoundError as error:
        from kernforge import extras  # noqa: PLC0415 - see above

        told = extras.missing(error, f"{__name__}.{name}")
        if told is None:
            raise
        raise told from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)

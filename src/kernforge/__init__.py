# SPDX-License-Identifier: Apache-2.0
"""GPU kernels for PyTorch, from the first line to production."""

from __future__ import annotations

from kernforge import _lazy
from kernforge._version import __version__

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.artifact.metadata import Metadata
    from kernforge.bench.hub import Benchmark
    from kernforge.bench.workload import Tensor, Workload
    from kernforge.extension.api import load, load_inline
    from kernforge.layers.decide import KernelizeReport, KernelSource, LayerOutcome
    from kernforge.layers.kernelize import (
        kernelize,
        kernelize_report,
        kernelized,
        replace_kernel_forward_from_hub,
        unkernelize,
        use_kernel_forward_from_hub,
        use_kernel_func_from_hub,
        use_kernelized_func,
    )
    from kernforge.layers.mapping import (
        CUDAProperties,
        Device,
        KernelizeFallback,
        Mode,
        ROCMProperties,
        register_kernel_mapping,
        use_kernel_mapping,
    )
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

__getattr__, __dir__ = _lazy.attributes(
    __name__,
    {
        "artifact.metadata": "Metadata",
        "bench.workload": "Tensor Workload",
        "bench.hub": "Benchmark",
        "extension.api": "load load_inline",
        "extension.notebook": "load_ipython_extension",  # IPython is an extra: not in __all__
        "layers.decide": "KernelSource KernelizeReport LayerOutcome",
        "layers.kernelize": "kernelize kernelize_report kernelized unkernelize use_kernelized_func "
        "replace_kernel_forward_from_hub use_kernel_forward_from_hub use_kernel_func_from_hub",
        "layers.mapping": "CUDAProperties Device KernelizeFallback Mode ROCMProperties "
        "register_kernel_mapping use_kernel_mapping",
        "layers.repositories": "FuncRepository LayerRepository LocalFuncRepository "
        "LocalLayerRepository LockedFuncRepository LockedLayerRepository",
        "loader.api": "get_kernel get_kernel_variants get_local_kernel get_locked_kernel "
        "has_kernel install_kernel load_kernel",
        "loader.importer": "LoadedKernel RepoInfo get_kernel_dep get_loaded_kernels",
        "loader.resolve": "VariantAccepted VariantRejected",
    },
    __all__,
)

# SPDX-License-Identifier: Apache-2.0
"""The modules of the hub's client, and where each of their names lies here.

One line a module: the module of the client below ``kernels``, and for each of ours the names that it
gives, as ``theirs`` or ``theirs=ours``. Names of every version from 0.14 to 0.17 are here; those with
an underscore are what applications and the client's own tests reach for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.system.environment import Environment

VERSION = "0.17.2"
"""The version of the client whose behaviour is measured here, and which is claimed by default."""


def claimed_version(environment: Environment) -> str:
    """The version of ``kernels`` that kernforge claims to be."""
    return environment.kernforge_kernels_version or VERSION


_LAYERS = {
    "compat.layers": "FuncRepository LayerRepository LocalFuncRepository LocalLayerRepository "
    "LockedFuncRepository LockedLayerRepository use_kernel_func_from_hub "
    "_validate_layer=validate_layer",
    "layers.modes": "CUDAProperties Device KernelizeFallback Mode ROCMProperties",
    "layers.decorators": "replace_kernel_forward_from_hub use_kernel_forward_from_hub "
    "use_kernelized_func",
    "layers.kernelize": "kernelize",
    "layers.registration": "register_kernel_mapping use_kernel_mapping _KERNEL_MAPPING=current",
    "compat.loading": "get_kernel get_local_kernel get_locked_kernel load_kernel",
}
_LOADING = {
    "compat.loading": "get_kernel get_local_kernel get_locked_kernel has_kernel install_kernel "
    "install_kernel_all_variants load_kernel LoadedKernel get_loaded_kernels "
    "_loaded_kernels=loaded_kernels",
    "compat.resolvers": "_import_from_path=import_from_path use_kernel_deps DepTreeNode "
    "resolve_kernel_tree",
    "loader.importer": "RepoInfo get_kernel_dep",
}
_HUB = {
    "compat.hub": "_get_available_versions=available_versions revision_or_version "
    "resolve_version_spec_as_ref resolve_kernel_version select_revision_or_version "
    "_get_hf_api=get_hf_api _platform=platform _get_cache_dir=cache_dir "
    "_check_trust_remote_code=check_trust_remote_code",
    "loader.importer": "RepoInfo",
}
_VALUES = {
    "compat.values": "Backend KernelDependency KernelLock KernelLocks KernelName KernelPaths "
    "KernelVersion NixKernelLock NixKernelLocks Version",
    "compat.metadata": "BackendInfo Build Digest DigestAlgorithm DigestValidationError "
    "DigestViolation General GitStatus KernelBuilderVersion Metadata Provenance",
}
_VARIANTS = {
    "compat.variants": "Arch ArchVariant Noarch NoarchVariant Torch TorchNoarch TorchStableAbi "
    "TvmFfi Variant VariantAccepted VariantRejected Decision get_kernel_variants get_variants "
    "get_variants_local parse_variant resolve_variant resolve_variants system_variants variants_trace_str "
    "_resolve_variant_for_system=resolve_for _select_backend=select_backend",
}
_BACKENDS = {
    "compat.variants": "CANN CPU CUDA Metal Neuron ROCm TPU XPU Backend parse_backend "
    "_select_backend=select_backend _backend=this_backend "
    "_get_torch_privateuse_backend_name=privateuse_name",
}
_VALIDATORS = {
    "compat.validators": "AllValidator ArchValidator DependencyValidator DirtyValidator "
    "MetadataValidator MinverValidator default_metadata_validators "
    "_installed_version=installed_version",
    "compat.variants": "_check_arch_incompatibility=check_arch_incompatibility",
}
_COMMANDS = {
    "__main__": "main",
    "compat.commands": "print_kernel_info print_kernel_versions download_kernels",
}

TOP = [
    "Benchmark",
    "CUDAProperties",
    "Device",
    "KernelizeFallback",
    "ROCMProperties",
    "FuncRepository",
    "LayerRepository",
    "LoadedKernel",
    "LocalFuncRepository",
    "LocalLayerRepository",
    "LockedFuncRepository",
    "LockedLayerRepository",
    "Metadata",
    "Mode",
    "RepoInfo",
    "VariantAccepted",
    "VariantRejected",
    "get_kernel",
    "get_kernel_dep",
    "get_kernel_variants",
    "get_loaded_kernels",
    "get_local_kernel",
    "get_locked_kernel",
    "has_kernel",
    "install_kernel",
    "kernelize",
    "load_kernel",
    "register_kernel_mapping",
    "replace_kernel_forward_from_hub",
    "use_kernel_forward_from_hub",
    "use_kernel_func_from_hub",
    "use_kernel_mapping",
    "use_kernelized_func",
]
"""``kernels.__all__``, without ``__version__``."""

PACKAGES = ("", "layer", "cli", "benchmarks")
"""Those of its modules that have modules below them."""

MODULES: Mapping[str, Mapping[str, str]] = {
    "": {
        **_LAYERS,
        **_LOADING,
        **_VARIANTS,
        "bench.hub.base": "Benchmark",
        "compat.metadata": "Metadata",
        "compat.loading": f"{_LOADING['compat.loading']}",
    },
    "_rust": _VALUES,
    "_versions": _HUB,
    "archs": {
        "compat.variants": "_check_arch_incompatibility=check_arch_incompatibility "
        "_supports_cuda_capability=supports_cuda_capability"
    },
    "backends": _BACKENDS,
    "benchmark": {"bench.hub.base": "Benchmark"},
    "benchmarks": {},
    "cli": _COMMANDS,
    "cli.download": _COMMANDS,
    "cli.info": _COMMANDS,
    "cli.versions": _COMMANDS,
    "compat": {},
    "deps": _LOADING,
    "hf_hub": _HUB,
    "importer": _LOADING,
    "install": _LOADING,
    "layer": _LAYERS,
    "layer.device": _LAYERS,
    "layer.func": _LAYERS,
    "layer.globals": _LAYERS,
    "layer.kernelize": _LAYERS,
    "layer.layer": _LAYERS,
    "layer.mode": _LAYERS,
    "layer.repos": _LAYERS,
    "load": _LOADING,
    "lockfile": {**_VALUES, **_LOADING},
    "locking": {**_VALUES, "application.setuptools_hook": "write_egg_lockfile=write_lock"},
    "metadata": _VALUES,
    "minver": _VALIDATORS,
    "python_deps": {"loader.fitness": "validate_dependencies=check_python_depends"},
    "resolver": {
        "compat.resolvers": "HubCacheResolver HubResolver KernelPathsResolver LocalKernel "
        "LockedHubCacheResolver LockedHubResolver NoopResolver RemoteKernel RepoPathsResolver "
        "Resolver SequentialResolver resolve_hub_cache_kernel resolve_hub_kernel "
        "resolve_local_kernel _BYTECODE_IGNORE_PATTERNS=BYTECODE _locked_revision=locked_revision",
        "compat.hub": "_get_available_versions=available_versions",
        "compat.variants": "get_variants",
    },
    "status": {"compat.status": "KernelStatus Redirect resolve_status"},
    "utils": {**_LOADING, **_HUB},
    "validate": _VALIDATORS,
    "variants": _VARIANTS,
}
"""The modules below ``kernels`` by name (``""`` is itself): names by the module of ours."""


def homes(module: str) -> dict[str, tuple[str, str]]:
    """Where each name of a module of the client lies: the module below ``kernforge``, the name there."""
    found = {}
    for home, names in MODULES[module].items():
        for text in names.split():
            theirs, _, ours = text.partition("=")
            found[theirs] = (home, ours or theirs)
    return found

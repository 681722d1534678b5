# SPDX-License-Identifier: Apache-2.0
"""The modules of the hub's client, and where each of their names lies here.

One line a module: the module of the client below ``kernels``, and for each of ours the names that it
gives, as ``theirs`` or ``theirs=ours``. Names of every version from 0.14 to 0.17 are here; those with
an underscore are what applications and the client's own tests reach for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.system.environment import Environment

VERSION = "0.17.2"
"""The version of the client whose behaviour is measured here, and which is claimed by default."""


EARLIER: tuple[tuple[tuple[int, int], str], ...] = (
    (
        (0, 17),
        (
            "get_kernel get_kernel_variants get_local_kernel get_locked_kernel has_kernel install_kernel "
            "install_kernel_all_variants load_kernel validate_kernel KernelLock VariantLock"
        ),
    ),
    (
        (0, 15),
        (
            "FuncRepository LayerRepository get_kernel=get_kernel_or_main has_kernel=has_kernel_or_main "
            "select_revision_or_version=select_revision_or_main resolve_variant resolve_variants "
            "_resolve_variant_for_system=resolve_for"
        ),
    ),
)
"""What versions before another one did otherwise: names in ``compat.earlier``, the newest first."""


def claimed_version(environment: Environment) -> str:
    """The version of ``kernels`` that kernforge claims to be."""
    return environment.kernforge_kernels_version or VERSION


_HERE = {"compat.variants": "has_torch has_tvm_ffi"}
_HUB = {
    "compat.hub": "CACHE_DIR _get_available_versions=available_versions revision_or_version "
    "resolve_version_spec_as_ref resolve_kernel_version select_revision_or_version "
    "_get_hf_api=get_hf_api _platform=platform _get_cache_dir=cache_dir "
    "_check_trust_remote_code=check_trust_remote_code",
    "compat.variants": "glibc_version has_torch has_tvm_ffi",
    "loader.importer": "RepoInfo",
}
_RESOLVERS = {
    "compat.resolvers": "DepTreeNode HubCacheResolver HubResolver KernelPathsResolver LocalKernel "
    "LockedHubCacheResolver LockedHubResolver NoopResolver RemoteKernel RepoPathsResolver Resolver "
    "SequentialResolver extract_dependency_locks get_caller_locked_kernel_revision "
    "get_kernel_with_resolver get_locked_kernel_revision lock_kernel_tree "
    "resolve_hub_cache_kernel resolve_hub_kernel resolve_kernel_tree resolve_local_kernel "
    "_BYTECODE_IGNORE_PATTERNS=BYTECODE _import_from_path=import_from_path "
    "_locked_revision=locked_revision",
}
_VALIDATORS = {
    "compat.validators": "AllValidator ArchValidator DependencyValidator DirtyValidator "
    "MetadataValidator MinverValidator default_metadata_validators validate_dependencies "
    "validate_variant_dependencies _installed_version=installed_version",
}
_LOADING = {
    "compat.loading": "get_kernel get_local_kernel get_locked_kernel has_kernel install_kernel "
    "install_kernel_all_variants load_kernel LoadedKernel get_loaded_kernels "
    "_loaded_kernels=loaded_kernels",
    "loader.importer": "RepoInfo get_kernel_dep",
}
_ANY = {
    **_RESOLVERS,
    **_VALIDATORS,
    **_LOADING,
    "compat.hub": _HUB["compat.hub"],
    "loader.importer": f"{_LOADING['loader.importer']} use_kernel_deps=dependencies_of",
    "compat.variants": "get_variants get_variants_local resolve_variant variants_trace_str "
    f"{_HUB['compat.variants']}",
}
_LAYERS = {
    **_ANY,
    "compat.layers": "FuncRepository FuncRepositoryProtocol LayerRepository LayerRepositoryProtocol "
    "LocalFuncRepository LocalLayerRepository LockedFuncRepository LockedLayerRepository "
    "RepositoryProtocol use_kernel_func_from_hub _validate_layer=validate_layer",
    "layers.modes": "CUDAProperties Device KernelizeFallback Mode ROCMProperties",
    "layers.decorators": "replace_kernel_forward_from_hub use_kernel_forward_from_hub "
    "use_kernelized_func",
    "layers.kernelize": "kernelize",
    "layers.registration": "register_kernel_mapping use_kernel_mapping _KERNEL_MAPPING=current",
}
_VALUES = {
    "compat.values": "Backend KernelDependency KernelLock KernelLocks KernelName KernelPaths "
    "KernelVersion NixKernelLock NixKernelLocks Version",
    "compat.metadata": "BackendInfo Build Digest DigestAlgorithm DigestValidationError "
    "DigestViolation General GitStatus KernelBuilderVersion Metadata Provenance",
}
_BACKENDS = {
    "compat.variants": "CANN CPU CUDA Metal Neuron ROCm TPU XPU Backend parse_backend has_torch "
    "_select_backend=select_backend _backend=this_backend "
    "_get_torch_privateuse_backend_name=privateuse_name",
}
_VARIANTS = {
    "compat.variants": "Arch ArchVariant Noarch NoarchVariant Torch TorchNoarch TorchStableAbi "
    "TvmFfi Variant VariantAccepted VariantRejected Decision get_kernel_variants get_variants "
    "get_variants_local parse_variant resolve_variant resolve_variants system_variants "
    f"variants_trace_str has_tvm_ffi _resolve_variant_for_system=resolve_for "
    f"{_BACKENDS['compat.variants']}",
    "compat.hub": "select_revision_or_version",
}
_ARCHS = {
    "compat.variants": "has_torch _check_arch_incompatibility=check_arch_incompatibility "
    "_supports_cuda_capability=supports_cuda_capability",
}
_LOCKS = {
    **_ANY,
    **_VALUES,
    "compat.earlier": "VariantLock",
    "compat.status": "resolve_status",
    "application.setuptools_hook": "write_egg_lockfile=write_lock",
}
_COMMANDS = {
    **_ANY,
    "__main__": "main=main_as_client",
    "compat.values": "KernelLock",
    "compat.commands": "kernel_info kernel_versions print_kernel_info print_kernel_versions "
    "download_kernels lock_kernels",
    "compat.variants": "ArchVariant resolve_variants "
    "get_variants get_variants_local variants_trace_str",
    "compat.verify": "VerificationResult verify_signature verify_variant",
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
        "bench.hub.base": "Benchmark",
        "compat.layers": _LAYERS["compat.layers"],
        "compat.loading": _LOADING["compat.loading"],
        "compat.metadata": "Metadata",
        "compat.variants": "VariantAccepted VariantRejected get_kernel_variants",
        "layers.modes": _LAYERS["layers.modes"],
        "layers.decorators": _LAYERS["layers.decorators"],
        "layers.kernelize": _LAYERS["layers.kernelize"],
        "layers.registration": _LAYERS["layers.registration"],
        "loader.importer": _LOADING["loader.importer"],
    },
    "_rust": _VALUES,
    "_system": {"compat.variants": "glibc_version"},
    "_versions": _HUB,
    "archs": _ARCHS,
    "backends": _BACKENDS,
    "benchmark": {"bench.hub.base": "Benchmark"},
    "benchmarks": {},
    "cli": _COMMANDS,
    "cli.download": _COMMANDS,
    "cli.info": _COMMANDS,
    "cli.lock": _COMMANDS,
    "cli.verify_signature": _COMMANDS,
    "cli.versions": _COMMANDS,
    "compat": _HERE,
    "deps": {**_ANY, "compat.variants": f"Backend {_ANY['compat.variants']}"},
    "hf_hub": _HUB,
    "importer": _ANY,
    "install": _ANY,
    "layer": _LAYERS,
    "layer.device": _LAYERS,
    "layer.func": _LAYERS,
    "layer.globals": _LAYERS,
    "layer.kernelize": _LAYERS,
    "layer.layer": _LAYERS,
    "layer.mode": _LAYERS,
    "layer.repos": _LAYERS,
    "load": _ANY,
    "lockfile": _LOCKS,
    "locking": _LOCKS,
    "metadata": _VALUES,
    "minver": _VALIDATORS,
    "python_deps": {**_VALIDATORS, "compat.variants": "Backend"},
    "resolver": _ANY,
    "status": {"compat.status": "KernelStatus KernelStatusKind Redirect resolve_status"},
    "utils": {
        **_ANY,
        "compat.earlier": "KernelLock VariantLock git_hash_object validate_kernel",
        "compat.status": "resolve_status",
        "compat.variants": f"KNOWN_BACKENDS get_kernel_variants resolve_variants {_ANY['compat.variants']}",
    },
    "validate": {**_VALIDATORS, **_ARCHS},
    "variants": _VARIANTS,
    "verify": {
        "compat.verify": "DEFAULT_POLICIES GitHubWorkflowPolicy VerificationResult verify_variant",
        "compat.metadata": "Digest DigestValidationError DigestViolation Metadata",
    },
}
"""The modules below ``kernels`` by name (``""`` is itself): names by the module of ours."""


def homes(module: str, claimed: str = VERSION) -> dict[str, tuple[str, str]]:
    """Where each name of a module of the client lies: the module below ``kernforge``, the name there.

    Args:
        module: the module, below ``kernels``.
        claimed: the version of ``kernels`` that it answers as.
    """
    found = {
        theirs: (home, ours or theirs)
        for home, names in MODULES[module].items()
        for theirs, ours in map(_pair, names.split())
    }
    version = Version2.leading(claimed)
    for before, names in EARLIER:
        if version is not None and version < before:
            for theirs, ours in map(_pair, names.split()):
                if theirs in found and module != "_rust":
                    found[theirs] = ("compat.earlier", ours or theirs)
    return found


def _pair(text: str) -> tuple[str, str]:
    theirs, _, ours = text.partition("=")
    return theirs, ours

# SPDX-License-Identifier: Apache-2.0
"""The tables of build.toml, editions 5 and 6, as types.

Source of the format: the ``build.toml`` of Hugging Face's kernel-builder as ``kernels`` 0.17.2
reads it, and as 0.18 does for edition 6. Keys are kebab-case, except in ``[torch-noarch]``, whose
keys are snake_case there and so here. Every table refuses unknown keys.

``document.parse`` reads files into these types, and ``mistakes`` describes invalid values. The
reference page is made from the descriptions.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    PlainValidator,
    Strict,
    StringConstraints,
    Tag,
    WithJsonSchema,
    model_validator,
)
from pydantic.fields import FieldInfo

from kernforge.artifact.version import Version2

Backend: TypeAlias = Literal["cann", "cpu", "cuda", "metal", "neuron", "rocm", "tpu", "xpu"]
Dependency: TypeAlias = Literal[
    "cutlass_2_10",
    "cutlass_3_5",
    "cutlass_3_6",
    "cutlass_3_8",
    "cutlass_3_9",
    "cutlass_4_0",
    "cutlass_4_4",
    "cutlass_4_5",
    "sycl_tla",
    "metal-cpp",
    "torch",
]
Path: TypeAlias = tuple[str | int, ...]
"""The keys and list indices that lead to a value of the file."""

# Words in parentheses are not TOML keys: they name a branch of a union in pydantic's errors.
VERSION_TAG = "(version)"
TABLE_TAG = "(table)"

_GIT_URL = re.compile(r"(?:https?|git|ssh|git\+(?:ssh|https?))://[^\s/].*", re.IGNORECASE)
_SCP_URL = re.compile(r"[^\s:]+:(?!/).+")


def _version(value: object) -> Version2:
    if isinstance(value, str):
        return Version2.parse(value)
    raise ValueError('expected a version in quotes, as in "12.8"')


def _git_url(value: str) -> str:
    if not _GIT_URL.fullmatch(value) and not _SCP_URL.fullmatch(value):
        raise ValueError("expected a git address: https://..., ssh://... or host:path")
    return value


def _as_list_if_text(value: object) -> object:
    return [value] if isinstance(value, str) else value


def _stable_abi_kind(value: object) -> str:
    return TABLE_TAG if isinstance(value, dict) else VERSION_TAG


# A TOML list becomes a Python list, which strict mode does not accept for a tuple.
Strings: TypeAlias = Annotated[tuple[str, ...], Strict(strict=False)]
VersionText: TypeAlias = Annotated[
    Version2,
    PlainValidator(_version),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]+\.[0-9]+$"}),
]
GitUrl: TypeAlias = Annotated[str, AfterValidator(_git_url)]
GitUrls: TypeAlias = Annotated[
    tuple[GitUrl, ...],
    Strict(strict=False),
    BeforeValidator(_as_list_if_text),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]}),
]
StableAbi: TypeAlias = Annotated[
    Annotated[VersionText, Tag(VERSION_TAG)]
    | Annotated[Mapping[Backend, VersionText], Tag(TABLE_TAG)],
    Discriminator(_stable_abi_kind),
]

Name: TypeAlias = Annotated[str, StringConstraints(pattern="^[a-z][-a-z0-9]*[a-z0-9]$")]
FRAMEWORKS = ("torch", "torch-noarch", "tvm-ffi")


def _kebab(name: str) -> str:
    return name.replace("_", "-")


class Table(BaseModel):
    """A table of the file: frozen, with strict types and without unknown keys."""

    model_config = ConfigDict(
        frozen=True,
        strict=True,
        extra="forbid",
        alias_generator=_kebab,
        validate_by_alias=True,
        validate_by_name=False,
    )


class KernelDependency(Table):
    """Another kernel that this kernel calls: a repository with a version or a revision."""

    repo_id: str = Field(description="Repository of the kernel, `owner/name`.")
    version: int | None = Field(default=None, ge=0, description="Its major version.")
    revision: str | None = Field(default=None, description="Its branch, tag or commit.")

    @model_validator(mode="after")
    def _exactly_one(self) -> Self:
        if (self.version is None) == (self.revision is None):
            raise ValueError("expected exactly one of 'version' and 'revision'")
        return self


KernelDependencies: TypeAlias = Annotated[tuple[KernelDependency, ...], Strict(strict=False)]
_KERNEL_DEPENDS = "Kernels that this kernel calls on this backend, added to the general list."
_PYTHON_DEPENDS = (
    "Python packages that the kernel needs on this backend, added to the general list."
)


class CudaGeneral(Table):
    """Settings of every CUDA build of the kernel."""

    minver: VersionText | None = Field(
        default=None, description="Lowest CUDA version to build for, inclusive."
    )
    maxver: VersionText | None = Field(
        default=None, description="Highest CUDA version to build for, inclusive."
    )
    kernel_depends: KernelDependencies = Field(default=(), description=_KERNEL_DEPENDS)
    python_depends: Strings = Field(default=(), description=_PYTHON_DEPENDS)


class NeuronGeneral(Table):
    """Settings of every Neuron build of the kernel."""

    kernel_depends: KernelDependencies = Field(default=(), description=_KERNEL_DEPENDS)
    python_depends: Strings = Field(
        default=(),
        description="Accepted but not used by any tool: list Neuron packages in the general key.",
    )


class TpuGeneral(Table):
    """Settings of every TPU build of the kernel."""

    python_depends: Strings = Field(default=(), description=_PYTHON_DEPENDS)


class XpuGeneral(Table):
    """Settings of every XPU build of the kernel."""

    kernel_depends: KernelDependencies = Field(default=(), description=_KERNEL_DEPENDS)
    python_depends: Strings = Field(default=(), description=_PYTHON_DEPENDS)


class Hub(Table):
    """The repository where the kernel is published."""

    repo_id: str | None = Field(default=None, description="Repository, `owner/name`.")
    branch: str | None = Field(
        default=None,
        description="Branch to publish to; the default is a version, on branch `v<version>`.",
    )


class General(Table):
    """Name, version and license of the kernel, and the backends to build for."""

    name: Name = Field(
        description="Name of the kernel: lower-case letters, digits and dashes, two or more, "
        "starting with a letter and not ending with a dash. The Python package has `_` for `-`."
    )
    version: int = Field(
        ge=0,
        description="Major version of the kernel's interface; published on branch `v<version>`.",
    )
    edition: Literal[5, 6] = Field(description="Edition of this file's format.")
    license: str = Field(description="License of the kernel, best as an SPDX identifier.")
    backends: Annotated[tuple[Backend, ...], Strict(strict=False)] = Field(
        description="Backends to build for."
    )
    upstream: GitUrls = Field(
        default=(),
        description="Git address of the project that the kernel's code comes from; in edition 6 "
        "also a list of them.",
    )
    source: GitUrl | None = Field(
        default=None, description="Git address of the repository that holds this build.toml."
    )
    kernel_depends: KernelDependencies = Field(
        default=(), description="Kernels that this kernel calls."
    )
    python_depends: Strings = Field(
        default=(), description="Python packages that the kernel needs."
    )
    cuda: CudaGeneral = Field(default_factory=CudaGeneral, description="Only for CUDA.")
    neuron: NeuronGeneral = Field(default_factory=NeuronGeneral, description="Only for Neuron.")
    tpu: TpuGeneral = Field(default_factory=TpuGeneral, description="Only for TPU.")
    xpu: XpuGeneral = Field(default_factory=XpuGeneral, description="Only for XPU.")
    hub: Hub = Field(
        default_factory=Hub, description="The repository where the kernel is published."
    )

    @property
    def python_name(self) -> str:
        """Name of the Python package: the kernel's name with underscores."""
        return self.name.replace("-", "_")

    def kernel_depends_for(self, backend: Backend) -> tuple[KernelDependency, ...]:
        """The general kernel dependencies, then those of this backend."""
        own = getattr(self, backend, None)
        return (*self.kernel_depends, *getattr(own, "kernel_depends", ()))

    def python_depends_for(self, backend: Backend) -> tuple[str, ...]:
        """The general Python packages, then those of this backend.

        The packages of ``[general.neuron]`` are not included, as in kernel-builder.
        """
        own = None if backend == "neuron" else getattr(self, backend, None)
        return (*self.python_depends, *getattr(own, "python_depends", ()))


class Framework(Table):
    """The keys of every framework table."""

    pyext: Strings = Field(
        default=("py", "pyi"),
        description="Extensions of the files of the Python package that are installed, without "
        "the dot.",
    )

    @property
    def data_extensions(self) -> tuple[str, ...]:
        """Extensions of the installed files that are not Python."""
        return tuple(ext for ext in self.pyext if ext not in {"py", "pyi"})


class Binding(Framework):
    """The keys of a framework table with a compiled binding."""

    src: Strings = Field(
        default=(), description="C++ files of the binding and the headers that they include."
    )
    include: Strings = Field(
        default=(), description="Include directories of these files, relative to the project."
    )
    cxx_flags: Strings = Field(default=(), description="Compiler flags of these files.")


class Torch(Binding):
    """A kernel with a compiled PyTorch binding."""

    minver: VersionText | None = Field(
        default=None, description="Lowest PyTorch version to build for, inclusive."
    )
    maxver: VersionText | None = Field(
        default=None, description="Highest PyTorch version to build for, inclusive."
    )
    stable_abi: StableAbi | None = Field(
        default=None,
        description="Oldest PyTorch version whose stable ABI the binding uses: a version for all "
        "backends, or a table of backend to version; other backends use the full ABI.",
    )

    def stable_abi_for(self, backend: Backend) -> Version2 | None:
        """The stable ABI that this backend's build uses, or None for the full ABI."""
        if self.stable_abi is None or isinstance(self.stable_abi, Version2):
            return self.stable_abi
        return self.stable_abi.get(backend)


class TorchNoarch(Framework):
    """A kernel of Python alone, such as a Triton kernel: the build compiles nothing."""

    model_config = ConfigDict(alias_generator=None)

    cuda_capabilities: Strings | None = Field(
        default=None,
        description="CUDA compute capabilities that the kernel runs on, for the metadata.",
    )
    rocm_archs: Strings | None = Field(
        default=None, description="ROCm architectures that the kernel runs on, for the metadata."
    )


class TvmFfi(Binding):
    """A kernel with a compiled TVM FFI binding, for any framework."""


_BACKEND = "The backend that these files are compiled for."


class KernelSection(Table):
    """The keys of every kernel section."""

    backend: Backend = Field(description=_BACKEND)
    depends: Annotated[tuple[Dependency, ...], Strict(strict=False)] = Field(
        description="Libraries whose headers these files need."
    )
    src: Strings = Field(
        description="Source files, and the headers that they include; `*`, `?` and `**` match, "
        "which kernel-builder does not have and `kernforge export` writes out."
    )
    include: Strings = Field(
        default=(), description="Include directories of these files, relative to the project."
    )
    cxx_flags: Strings = Field(default=(), description="Flags of the C++ compiler.")


class CpuKernel(KernelSection):
    """Files compiled for the CPU."""

    backend: Literal["cpu"] = Field(description=_BACKEND)


class CudaKernel(KernelSection):
    """Files compiled for CUDA."""

    backend: Literal["cuda"] = Field(description=_BACKEND)
    cuda_capabilities: Strings | None = Field(
        default=None,
        description='Compute capabilities to compile for, such as "9.0a"; the default is the '
        "toolkit's default list.",
    )
    cuda_flags: Strings = Field(default=(), description="Flags of nvcc.")
    cuda_minver: VersionText | None = Field(
        default=None,
        description="Lowest CUDA version of the section; an older CUDA omits the whole section.",
    )


class MetalKernel(KernelSection):
    """Files compiled for Metal."""

    backend: Literal["metal"] = Field(description=_BACKEND)


class RocmKernel(KernelSection):
    """Files compiled for ROCm."""

    backend: Literal["rocm"] = Field(description=_BACKEND)
    rocm_archs: Strings | None = Field(
        default=None, description='Architectures to compile for, such as "gfx942".'
    )
    hip_flags: Strings = Field(default=(), description="Flags of the HIP compiler.")


class XpuKernel(KernelSection):
    """Files compiled for XPU."""

    backend: Literal["xpu"] = Field(description=_BACKEND)
    sycl_flags: Strings = Field(default=(), description="Flags of the SYCL compiler.")


AnyKernel: TypeAlias = CpuKernel | CudaKernel | MetalKernel | RocmKernel | XpuKernel


class Document(Table):
    """A kernel project: general settings, one framework table, and kernel sections."""

    general: General = Field(
        description="Name, version and license of the kernel, and the backends to build for."
    )
    torch: Torch | None = Field(
        default=None,
        description="A compiled PyTorch binding. Exactly one framework table is required.",
    )
    torch_noarch: TorchNoarch | None = Field(
        default=None, description="Python alone. Exactly one framework table is required."
    )
    tvm_ffi: TvmFfi | None = Field(
        default=None,
        description="A compiled TVM FFI binding. Exactly one framework table is required.",
    )
    kernel: dict[str, Annotated[AnyKernel, Discriminator("backend")]] = Field(
        default_factory=dict, description="Files to compile, by a name of your choice."
    )


TABLES: Mapping[str, type[Table]] = {
    "general": General,
    "general.cuda": CudaGeneral,
    "general.neuron": NeuronGeneral,
    "general.tpu": TpuGeneral,
    "general.xpu": XpuGeneral,
    "general.hub": Hub,
    "torch": Torch,
    "torch-noarch": TorchNoarch,
    "tvm-ffi": TvmFfi,
}
KERNELS: Mapping[str, type[KernelSection]] = {
    "cpu": CpuKernel,
    "cuda": CudaKernel,
    "metal": MetalKernel,
    "rocm": RocmKernel,
    "xpu": XpuKernel,
}


def fields(kind: type[Table]) -> dict[str, FieldInfo]:
    """A table's fields by their keys in the file."""
    return {field.alias or name: field for name, field in kind.model_fields.items()}

# SPDX-License-Identifier: Apache-2.0
"""Variants, backends and decisions in the shapes that the client gives them.

Names are parsed and variants chosen by ``kernforge.artifact.variant`` and
``kernforge.loader.resolve``; here is only what their attributes are called.
"""

from __future__ import annotations

import importlib.util
import logging
import platform
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from kernforge.artifact import variant as ours
from kernforge.artifact.version import Version2
from kernforge.errors import MachineError, RequestError, UsageError
from kernforge.loader import api as loader
from kernforge.loader import resolve as decisions
from kernforge.loader.host import Host, probe, with_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from packaging.version import Version

log = logging.getLogger("kernels.variants")

has_torch = importlib.util.find_spec("torch") is not None
has_tvm_ffi = importlib.util.find_spec("tvm_ffi") is not None
KNOWN_BACKENDS = {"cpu", "cuda", "metal", "neuron", "rocm", "xpu", "npu"}
"""What ``backend=`` may be called, as 0.14 to 0.16 say it."""
_ABIS = {True: "-cxx11", False: "-cxx98", None: ""}


def glibc_version() -> str | None:
    """The version of this process's glibc; None with another C library."""
    name, version = platform.libc_ver()
    return version if name == "glibc" else None


def _version(text: object) -> Version:
    from packaging.version import Version  # noqa: PLC0415 - takes milliseconds

    return Version(str(text))


@dataclass(unsafe_hash=True)
class _Plain:
    """A backend whose builds name no version."""

    NAME: ClassVar[str] = ""

    @property
    def name(self) -> str:
        """The backend."""
        return self.NAME

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return self.NAME

    @classmethod
    def parse(cls, s: str) -> Any:
        """Parse its part of a variant's name."""
        backend = parse_backend(s)
        if type(backend) is not cls:
            raise RequestError(f"Invalid {cls.__name__} variant string: {s!r}")
        return backend


@dataclass(unsafe_hash=True)
class _Versioned(_Plain):
    """A backend whose builds name a version."""

    version: Version

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return str(ours.Backend(self.NAME, Version2(self.version.major, self.version.minor)))


def _backend(base: type, spelled: str) -> Any:
    return type(spelled, (base,), {"NAME": spelled.lower(), "__module__": "kernels.backends"})


CPU: Any = _backend(_Plain, "CPU")
Metal: Any = _backend(_Plain, "Metal")
Neuron: Any = _backend(_Plain, "Neuron")
TPU: Any = _backend(_Plain, "TPU")
CUDA: Any = _backend(_Versioned, "CUDA")
ROCm: Any = _backend(_Versioned, "ROCm")
XPU: Any = _backend(_Versioned, "XPU")
CANN: Any = _backend(_Versioned, "CANN")
_BACKENDS = {kind.NAME: kind for kind in (CPU, Metal, Neuron, TPU, CUDA, ROCm, XPU, CANN)}
Backend: TypeAlias = _Plain


def _shaped(backend: ours.Backend) -> Any:
    kind = _BACKENDS[backend.name]
    return kind() if backend.version is None else kind(_version(backend.version))


def _unshaped(backend: Any) -> ours.Backend:
    version = getattr(backend, "version", None)
    number = None if version is None else Version2(version.major, version.minor)
    return ours.Backend(backend.name, number)


def parse_backend(s: str) -> Any:
    """Parse a backend such as ``cpu`` or ``cu130``."""
    try:
        return _shaped(ours.Backend.parse(s))
    except UsageError:
        raise RequestError(f"Unknown backend variant string: {s!r}") from None


def select_backend(backend: str | None) -> Any:
    """The backend that kernels are loaded for here."""
    return _shaped(probe(backend).backend)


def this_backend() -> Any:
    """The backend that torch is built for."""
    return select_backend(None)


def privateuse_name() -> str | None:
    """What torch calls its third backend, such as ``npu``."""
    import torch

    get = getattr(torch._C, "_get_privateuse1_backend_name", None)  # noqa: SLF001 - torch has no other way
    return None if get is None else str(get())


class _Framework:
    """What loads a kernel; the first part of a variant's name."""

    @classmethod
    def parse(cls, s: str) -> Any:
        """Parse its part of a variant's name."""
        framework = parse_variant(f"{s}-cpu-x86_64-linux").framework
        if type(framework) is not cls:
            raise RequestError(f"Invalid {cls.__name__} variant string: {s!r}")
        return framework


def _numbered(name: str, version: Version) -> str:
    return f"{name}{version.major}{version.minor}"


@dataclass(unsafe_hash=True)
class Torch(_Framework):
    """A torch of one version."""

    version: Version
    cxx11_abi: bool | None

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return _numbered("torch", self.version) + _ABIS[self.cxx11_abi]


@dataclass(unsafe_hash=True)
class TorchStableAbi(_Framework):
    """torch's stable ABI from a version on."""

    version: Version

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return _numbered("torch-stable-abi", self.version)


@dataclass(unsafe_hash=True)
class TvmFfi(_Framework):
    """A tvm-ffi of one version."""

    version: Version

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return _numbered("tvm-ffi", self.version)


@dataclass(unsafe_hash=True)
class TorchNoarch:
    """Any torch."""

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return "torch"


@dataclass(unsafe_hash=True)
class Arch:
    """What machine code runs on."""

    backend: Any
    platform: str
    os: str

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return f"{self.backend.variant_str}-{self.platform}-{self.os}"

    @staticmethod
    def parse(parts: list[str]) -> Arch:
        """The backend, the processor and the operating system."""
        if len(parts) != len(("backend", "platform", "os")):
            raise RequestError(f"Invalid arch variant parts: {parts!r}")
        return Arch(parse_backend(parts[0]), *parts[1:])


@dataclass(unsafe_hash=True)
class Noarch:
    """What a build without machine code runs on."""

    backend_name: str

    @property
    def variant_str(self) -> str:
        """Its part of a variant's name."""
        return self.backend_name

    @staticmethod
    def parse(s: str) -> Noarch:
        """A backend's name."""
        return Noarch(s)


class _Variant:
    """A variant; equal to another of the same name."""

    def __init__(self, framework: Any, arch: Any) -> None:
        self.ours = ours.Variant.parse(f"{framework.variant_str}-{arch.variant_str}")

    @classmethod
    def of(cls, parsed: ours.Variant) -> Any:
        """The client's form of a variant."""
        found = cls.__new__(cls)
        found.ours = parsed
        return found

    @property
    def variant_str(self) -> str:
        """The name."""
        return str(self.ours)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Variant) and self.ours == other.ours

    def __hash__(self) -> int:
        return hash(self.ours)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.variant_str!r})"


class ArchVariant(_Variant):
    """A build with machine code."""

    @cached_property
    def framework(self) -> Torch | TorchStableAbi | TvmFfi:
        """What it is loaded by."""
        version = _version(self.ours.version)
        match self.ours.framework:
            case "torch-stable-abi":
                return TorchStableAbi(version)
            case "tvm-ffi":
                return TvmFfi(version)
            case _:
                return Torch(version, self.ours.cxx11)

    @cached_property
    def arch(self) -> Arch:
        """What it runs on."""
        return Arch(_shaped(self.ours.backend), self.ours.cpu, self.ours.os)


class NoarchVariant(_Variant):
    """A build without machine code."""

    @cached_property
    def framework(self) -> TorchNoarch:
        """What it is loaded by."""
        return TorchNoarch()

    @cached_property
    def arch(self) -> Noarch:
        """What it runs on."""
        return Noarch(self.ours.backend.name)


Variant: TypeAlias = ArchVariant | NoarchVariant


@dataclass(unsafe_hash=True)
class VariantAccepted:
    """A variant that fits this process."""

    variant: Variant


@dataclass(unsafe_hash=True)
class VariantRejected:
    """A variant that does not fit, and why."""

    variant: Variant
    reason: str


Decision: TypeAlias = VariantAccepted | VariantRejected


def parse_variant(variant_str: str) -> Variant:
    """Parse a variant's name."""
    try:
        parsed = ours.Variant.parse(variant_str)
    except UsageError as error:
        raise RequestError(
            f"Unknown framework in variant string: {variant_str!r}", hint=error.hint
        ) from None
    return _wrapped(parsed)


def _wrapped(parsed: ours.Variant) -> Variant:
    kind = NoarchVariant if parsed.is_noarch else ArchVariant
    return kind.of(parsed)  # type: ignore[no-any-return]


def _decision(decision: decisions.Decision) -> Decision:
    variant = _wrapped(decision.variant)
    return (
        VariantAccepted(variant) if decision.accepted else VariantRejected(variant, decision.reason)
    )


def _parsed(names: Iterable[str], where: str) -> list[Variant]:
    found = []
    for name in names:
        try:
            found.append(parse_variant(name))
        except RequestError:
            log.warning("%s contains invalid build variant: %r", where, name)
    return found


def get_variants(api: Any, *, repo_id: str, revision: str) -> list[Variant]:
    """The variants of a published kernel."""
    tree = api.list_repo_tree(repo_id, path_in_repo="build", repo_type="kernel", revision=revision)
    names = {item.path.split("/")[-1] for item in tree if not hasattr(item, "blob_id")}
    return _parsed(sorted(names), f"Repository {repo_id} (revision: {revision})")


def get_variants_local(repo_path: Path) -> list[Variant]:
    """The variants in a directory."""
    names = []
    for path in sorted(repo_path.glob("*/")):
        try:
            names.append(parse_variant(path.name))
        except RequestError:
            continue
    return names


def _resolved(variants: Sequence[Variant], host: Host) -> tuple[list[Variant], list[Decision]]:
    resolution = decisions.resolve((v.variant_str for v in variants), host)
    trace = [_decision(decision) for decision in resolution.decisions]
    return [d.variant for d in trace if isinstance(d, VariantAccepted)], trace


def resolve_variants(
    variants: Sequence[Variant], backend: str | None = None
) -> tuple[list[Variant], list[Decision]]:
    """The variants that fit this process, the best first, and the decision about each."""
    return _resolved(variants, probe(backend))


def resolve_variant(
    variants: Sequence[Variant], backend: str | None = None
) -> tuple[Variant | None, list[Decision]]:
    """The variant to load, and the decision about each."""
    accepted, trace = resolve_variants(variants, backend)
    return next(iter(accepted), None), trace


def resolve_for(
    *,
    variants: Sequence[Variant],
    selected_backend: Any,
    cpu: str,
    os: str,
    torch_version: Version | None,
    torch_cxx11_abi: bool | None,
    tvm_ffi_version: Version | None,
    macos_version: Version | None = None,
    freethreaded: bool = False,
    **_more: Any,
) -> tuple[list[Variant], list[Decision]]:
    """The variants that fit a machine, the best first, and the decision about each."""

    def number(version: Version | None) -> Version2 | None:
        return None if version is None else Version2(version.major, version.minor)

    host = Host(
        cpu=cpu,
        os=os,
        backend=_unshaped(selected_backend),
        torch=number(torch_version),
        cxx11=torch_cxx11_abi,
        tvm_ffi=number(tvm_ffi_version),
        macos=number(macos_version),
        free_threaded=freethreaded,
    )
    return _resolved(variants, host)


def system_variants() -> list[Variant]:
    """The variants of this machine by name, the best first; a name of 0.14."""
    host = probe()
    names = [f"torch-{host.backend.name}", "torch-universal"]
    if host.torch is not None:
        backend = str(host.backend)
        tag = _ABIS[host.cxx11]
        torch = f"torch{host.torch.major}{host.torch.minor}"
        names = [f"{torch}{tag}-{backend}-{host.cpu}-{host.os}", *names]
    return [parse_variant(name) for name in names]


def variants_trace_str(trace: Sequence[Decision]) -> str:
    """One line for each decision."""
    first = next((d.variant for d in trace if isinstance(d, VariantAccepted)), None)
    return "\n".join(
        f"{d.variant.variant_str}: {d.reason}"
        if isinstance(d, VariantRejected)
        else f"{d.variant.variant_str} compatible{', preferred' * (d.variant == first)} ✅"
        for d in trace
    )


def get_kernel_variants(
    repo_id: str,
    *,
    revision: str | None = None,
    version: int | None = None,
    backend: str | None = None,
) -> list[Decision]:
    """Every variant of a kernel with the decision about it, the best first."""
    found = loader.get_kernel_variants(repo_id, version=version, revision=revision, backend=backend)
    return [_decision(decision) for decision in found]


def supports_cuda_capability(archs: Sequence[str], capability: tuple[int, int]) -> bool:
    """Whether device code for some architectures runs on a GPU."""
    host = Host(cpu="", os="", backend=ours.Backend("cuda"), capability=Version2(*capability))
    return not decisions.check_archs("cuda", archs, host)


def check_arch_incompatibility(metadata: Any, variant: str) -> None:
    """Refuse a build whose device code does not run on this process's GPU.

    Raises:
        MachineError: it does not; also a RuntimeError.
    """
    document = metadata.ours
    if not document.archs or document.backend not in {"cuda", "rocm"}:
        return
    host = with_device(Host(cpu="", os="", backend=ours.Backend(document.backend)))
    if reason := decisions.check_archs(document.backend, document.archs, host):
        raise MachineError(
            f"Kernel '{document.name}' variant '{variant}' does not support the current device: "
            f"{reason}",
            hint="pass check_arch=False if it can run there in another way, such as with Triton",
        )

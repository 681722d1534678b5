# SPDX-License-Identifier: Apache-2.0
"""Choose the variant of a kernel for a machine, with a reason for each refusal.

The rules and the order are those of the hub's client, ``kernels`` 0.17, with two differences. On a
free-threaded Python before 3.15, which cannot load the limited API, the trace has builds with
machine code and that reason, where the client leaves them out. Where torch is built for a GPU and
sees none, builds for the CPU come first.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import IntEnum

from kernforge.artifact import gpu
from kernforge.artifact.variant import Backend, Variant
from kernforge.artifact.version import Version2, in_order
from kernforge.errors import UsageError
from kernforge.loader.host import Host

METAL_MACOS = Version2(26, 0)
"""The first macOS whose Metal can load the hub's Metal builds."""
ABI3_FREE_THREADED = (3, 15)
"""The first free-threaded Python with a limited API."""


class Step(IntEnum):
    """The rule that refused a variant; a later rule is a nearer miss."""

    PYTHON = 1
    CPU = 2
    OS = 3
    FRAMEWORK = 4
    BACKEND = 5
    ACCEPTED = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision about one variant: ``VariantAccepted`` or ``VariantRejected``.

    Attributes:
        name: the folder's name.
        variant: the parsed name.
        step: the rule that refused it, or ``ACCEPTED``.
        reason: why it was refused; empty when accepted.
    """

    name: str
    variant: Variant
    step: Step
    reason: str = ""

    @property
    def accepted(self) -> bool:
        """Whether the variant fits."""
        return self.step is Step.ACCEPTED


class VariantAccepted(Decision):
    """A variant that fits."""

    __slots__ = ()


class VariantRejected(Decision):
    """A variant that does not fit."""

    __slots__ = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """Every decision: the accepted ones first, the best of them at the start."""

    decisions: tuple[Decision, ...]

    @property
    def accepted(self) -> tuple[Decision, ...]:
        """The variants that fit, best first."""
        return tuple(decision for decision in self.decisions if decision.accepted)

    @property
    def best(self) -> Decision | None:
        """The variant to load; None when none fits."""
        return next(iter(self.accepted), None)

    def trace(self) -> str:
        """One line for each variant."""
        lines = []
        for decision in self.decisions:
            mark = ", preferred" if decision is self.best else ""
            verdict = f" compatible{mark} ✅" if decision.accepted else f": {decision.reason}"
            lines.append(f"{decision.name}{verdict}")
        return "\n".join(lines)


def resolve(variants: Iterable[str], host: Host) -> Resolution:
    """Decide about every variant; folders with other names are left out."""
    names = tuple(variants)
    decisions = [_decide(name, variant, host) for name, variant in _parse_names(names)]
    ranked = tuple(sorted(decisions, key=_rank))
    if host.no_gpu:
        for_cpu = resolve(names, on_cpu(host)).accepted
        first = {decision.name for decision in for_cpu}
        ranked = (*for_cpu, *(decision for decision in ranked if decision.name not in first))
    return Resolution(decisions=ranked)


def _parse_names(names: Iterable[str]) -> Iterable[tuple[str, Variant]]:
    for name in names:
        try:
            variant = Variant.parse(name)
        except UsageError:
            continue
        yield name, variant


def _decide(name: str, variant: Variant, host: Host) -> Decision:
    step, reason = next(iter(_refusals(variant, host)), (Step.ACCEPTED, ""))
    kind = VariantAccepted if step is Step.ACCEPTED else VariantRejected
    return kind(name=name, variant=variant, step=step, reason=reason)


def _refusals(variant: Variant, host: Host) -> Iterable[tuple[Step, str]]:
    """Each rule that refuses the variant, those that a user cannot change first."""
    if variant.is_noarch:
        wanted = "npu" if host.backend.name == "cann" else host.backend.name
        if variant.backend.name not in {wanted, "universal"}:
            yield Step.BACKEND, f"is for {variant.backend.name}, kernels are wanted for {wanted}"
        return
    if host.free_threaded and host.python < ABI3_FREE_THREADED:
        python = str(host.python)
        yield Step.PYTHON, f"needs the limited API, which free-threaded Python {python} lacks"
    if variant.cpu != host.cpu:
        yield Step.CPU, f"built for CPU {variant.cpu}, this is {host.cpu}"
    if variant.os != host.os:
        yield Step.OS, f"built for {variant.os}, this is {host.os}"
    if reason := _framework_refusal(variant, host):
        yield Step.FRAMEWORK, reason
    if reason := _backend_refusal(variant.backend, host):
        yield Step.BACKEND, reason


def _framework_refusal(variant: Variant, host: Host) -> str:
    version = variant.version or (0, 0)
    installed = "there is no torch" if host.torch is None else f"torch is {host.torch}"
    if variant.framework == "torch-stable-abi":
        if host.torch is None or version > host.torch:
            return f"needs torch {version} or newer, {installed}"
    elif variant.framework == "torch":
        if version != host.torch:
            return f"needs torch {version}, {installed}"
        if variant.cxx11 is not None and variant.cxx11 != host.cxx11:
            spelled = {True: "cxx11", False: "cxx98", None: "no tagged"}
            return f"built for the {spelled[variant.cxx11]} ABI, torch has {spelled[host.cxx11]}"
    elif version != host.tvm_ffi:
        have = "there is none" if host.tvm_ffi is None else f"it is {host.tvm_ffi}"
        return f"needs tvm-ffi {version}, {have}"
    return ""


def _backend_refusal(built: Backend, host: Host) -> str:
    wanted = host.backend
    if built.name == wanted.name == "cuda" and built.version and wanted.version:
        if built.version[0] != wanted.version[0] or built.version[1] > wanted.version[1]:
            return f"needs CUDA {built.version}, torch has {wanted.version}"
    elif str(built) != str(wanted):
        return f"built for {built}, kernels are wanted for {wanted}"
    elif built.name == "metal" and (host.macos is None or host.macos < METAL_MACOS):
        have = "unknown" if host.macos is None else str(host.macos)
        return f"Metal kernels require macOS {METAL_MACOS} or later, this is {have}"
    return ""


def _rank(decision: Decision) -> tuple[int, ...]:
    """Sort key, ascending: accepted first, then as the hub's client prefers.

    Stable ABI (newer first), torch (untagged first), then tvm-ffi beside no machine code; within
    each the higher minor version of the backend. Equals keep the order in which they came.
    """
    variant = decision.variant
    refused = 0 if decision.accepted else 1
    if variant.is_noarch:
        return (refused, 2, 0, 0, 1 if variant.backend.name == "universal" else 0)
    minor = variant.backend.version[1] if variant.backend.version else 0
    if variant.framework == "torch-stable-abi":
        major, abi_minor = variant.version or (0, 0)
        return (refused, 0, -major, -abi_minor, -minor)
    if variant.framework == "torch":
        return (refused, 1, 0, 0 if variant.cxx11 is None else 1, -minor)
    return (refused, 2, 0, 0, -minor)


def way_out(
    resolution: Resolution,
    host: Host,
    *,
    take_cpu: str = 'pass backend="cpu" (a command: --backend cpu) to load {}',
) -> str:
    """The shortest way to a variant that fits, as advice.

    Args:
        take_cpu: the way to load a variant for the CPU instead, with {} for its name.
    """
    nearest = max(resolution.decisions, key=lambda d: d.step, default=None)
    if nearest is None:
        return "nothing is built for this kernel: publish a build of it"
    cpu_builds = resolve((d.name for d in resolution.decisions), on_cpu(host))
    if host.backend.name != "cpu" and cpu_builds.best:
        return take_cpu.format(cpu_builds.best.name)
    variant = nearest.variant
    wanted = f"build it for {host.backend} on {host.cpu}-{host.os}"
    if nearest.step is Step.PYTHON:
        return "use a Python with the global lock: limited-API builds load there"
    if nearest.step is Step.FRAMEWORK and variant.version:
        package = "tvm-ffi" if variant.framework == "tvm-ffi" else "torch"
        least = "" if variant.framework != "torch-stable-abi" else " or newer"
        return (
            f"install {package} {_nearest_version(resolution, nearest, host)}{least}, or {wanted}"
        )
    if nearest.step is Step.BACKEND and variant.backend.version and not variant.is_noarch:
        return f"install a torch for {variant.backend}, or {wanted}"
    return wanted


def _nearest_version(resolution: Resolution, nearest: Decision, host: Host) -> str:
    """The nearest version to the installed one among those that would fit."""
    framework = nearest.variant.framework
    installed = host.tvm_ffi if framework == "tvm-ffi" else host.torch
    versions = {
        d.variant.version
        for d in resolution.decisions
        if d.step is Step.FRAMEWORK and d.variant.framework == framework and d.variant.version
    }
    have = installed or max(versions)
    return str(min(versions, key=lambda v: (abs(v[0] - have[0]), abs(v[1] - have[1]), v)))


def on_cpu(host: Host) -> Host:
    """The same machine, with kernels wanted for its CPU."""
    return replace(host, backend=Backend("cpu"), no_gpu=False)


def check_driver(variant: str, host: Host) -> str:
    """The reason that the CUDA driver is too old for a build; else empty.

    A driver runs builds of every toolkit of its own CUDA major version or an older one.
    """
    try:
        built = Variant.parse(variant).backend.version
    except UsageError:
        return ""
    wanted = built or host.backend.version
    if host.backend.name != "cuda" or wanted is None or host.driver is None:
        return ""
    if host.driver[0] >= wanted[0]:
        return ""
    return f"it needs a driver for CUDA {wanted[0]}.0 or newer, this one is for CUDA {host.driver}"


def check_archs(backend: str, archs: Iterable[str] | None, host: Host) -> str:
    """The reason that a build's device code cannot run on the host's device; else empty.

    A build without architectures, or with unknown ones, can run; so can every build on a host whose
    device is unknown.

    Args:
        backend: ``cuda`` or ``rocm``, as the metadata has it.
        archs: the metadata's architectures, such as ``8.0``, ``9.0a``, ``10.0f``, ``9.0+PTX``.
    """
    listed = tuple(archs or ())
    message = f"the build has device code for {', '.join(in_order(listed))}"
    capability = host.capability if backend == "cuda" else None
    if capability is not None and not gpu.runs(listed, capability):
        return f"{message}, the device has CUDA capability {capability}"
    if backend == "rocm" and listed and host.gcn_arch is not None:
        device = host.gcn_arch.partition(":")[0]
        if device not in listed:
            return f"{message}, the device has ROCm arch {device}"
    return ""

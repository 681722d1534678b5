# SPDX-License-Identifier: Apache-2.0
"""Findings about a machine, from its facts, which ``examine`` collects.

An ``error`` stops builds or makes kernels fail on this machine, a
``warning`` causes problems later or in other tools, ``skipped`` could not be examined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

from kernforge.artifact.gpu import Arch
from kernforge.artifact.version import Version2
from kernforge.check.finding import Finding, Problem, Severity
from kernforge.errors import UsageError
from kernforge.toolchain import cuda_arch

GB = 10**9
# A CUDA toolkit and the headers of one torch take 1 GB of the store, a large build several GB more.
_DISK_NEEDED, _DISK_WANTED = GB, 10 * GB
# Heavy units take 1 to 12 GB in nvcc.
_MEMORY_NEEDED, _MEMORY_WANTED = GB, 8 * GB
OLDEST_GLIBC = Version2(2, 28)
_ARCH_OF_TORCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """The installed torch, as imported by another process.

    Attributes:
        cuda: CUDA version that it is built for; None for a build without CUDA.
        gpus: name and compute capability of each visible GPU.
        failure: why it cannot be imported; of the others only ``places`` has a meaning then.
        places: the file of each torch on Python's path; the first is imported.
    """

    version: str = ""
    cuda: Version2 | None = None
    archs: tuple[str, ...] = ()
    gpus: tuple[tuple[str, Version2], ...] = ()
    failure: str = ""
    places: tuple[str, ...] = ()


class Directory(NamedTuple):
    """A directory that kernforge writes to: its use, free bytes, and why it cannot be written."""

    use: str
    path: str
    free: int
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """All facts about a machine.

    Attributes:
        glibc: version of glibc; None if the C library is another one.
        compiler: why there is no usable host compiler; None if there is one.
        missing_header: path where ``Python.h`` should be; empty if it is there.
        toolkits: the version of each CUDA toolkit, or why it is none, with the variable that names
            it; "" for one on the PATH or in the usual directory.
        driver: newest CUDA version of the driver; None without a driver.
        sandbox: why actions cannot be isolated; None if they can.
        unreachable: indexes of pip's configuration that do not answer, and why; their URLs have
            no credentials.
        missing: packages of ``kernforge[build]`` that are not installed.
    """

    system: str
    cpu: str
    glibc: Version2 | None = OLDEST_GLIBC
    compiler: Problem | None = None
    static_libstdcxx: bool = True
    missing_header: str = ""
    arch_list: str = ""
    toolkits: tuple[tuple[str, Version2 | Problem], ...] = ()
    gpu_devices: bool = False
    driver: Version2 | None = None
    torch: TorchFacts | None = None
    directories: tuple[Directory, ...] = ()
    memory: int = 64 * GB
    sandbox: Problem | None = None
    unreachable: Mapping[str, str] = field(default_factory=dict)
    missing: tuple[str, ...] = ()


def diagnose(machine: MachineFacts) -> tuple[Finding, ...]:
    """All findings, errors first."""
    rules: tuple[Callable[[MachineFacts], Iterator[Finding]], ...] = (
        *(_system, _compiler, _driver, _torch, _toolkits, _arch_list, _packages),
        *(_room, _isolation, _network),
    )
    findings = chain.from_iterable(rule(machine) for rule in rules)
    order: tuple[Severity, ...] = ("error", "warning", "skipped")
    return tuple(sorted(findings, key=lambda each: order.index(each.severity)))


def _system(machine: MachineFacts) -> Iterator[Finding]:
    if machine.system != "Linux" or machine.cpu not in {"x86_64", "aarch64"}:
        yield Finding(
            "system",
            "system",
            "kernels are built on Linux with x86_64 or aarch64; this machine has "
            f"{machine.system} with {machine.cpu}",
            "build on a Linux machine; published kernels can be loaded here",
        )
    elif machine.glibc is None or machine.glibc < OLDEST_GLIBC:
        library = f"glibc {machine.glibc}" if machine.glibc else "not glibc"
        yield Finding(
            "glibc",
            "system",
            f"the C library is {library}; kernels and torch need glibc {OLDEST_GLIBC} or newer",
            "use a newer Linux distribution, or a container with one",
        )


def _compiler(machine: MachineFacts) -> Iterator[Finding]:
    if machine.compiler:
        yield Finding("compiler", "compiler", *machine.compiler)
        return
    if not machine.static_libstdcxx:
        yield Finding(
            "static-libstdcxx",
            "compiler",
            "the compiler has no libstdc++.a, so kernels depend on the C++ library of the machine "
            "that loads them",
            "`dnf install libstdc++-static` (Fedora, RHEL); Debian's g++ includes it",
            "warning",
        )
    if machine.missing_header:
        yield Finding(
            "python-headers",
            "compiler",
            f"{machine.missing_header} is missing; bindings that include it do not compile",
            "`apt install python3-dev` (Debian, Ubuntu), `dnf install python3-devel` (Fedora), or "
            "use torch's stable ABI in the binding and include no Python header",
            "warning",
        )


def _driver(machine: MachineFacts) -> Iterator[Finding]:
    torch, driver = machine.torch, machine.driver
    if machine.gpu_devices and driver is None:
        yield Finding(
            "driver-library",
            "driver",
            "the system has NVIDIA GPU devices, but libcuda.so.1 cannot be loaded",
            "install the user-space driver of the same version as the kernel driver; start a "
            "container with the NVIDIA container toolkit (`--gpus all`)",
        )
    if not driver or not torch or torch.failure or not torch.cuda:
        return
    if driver[0] < torch.cuda[0]:
        yield Finding(
            "driver-too-old",
            "driver",
            f"the driver is for CUDA {driver}, but torch {torch.version} is for CUDA {torch.cuda}",
            f"update the driver to one for CUDA {torch.cuda[0]}, or install a torch for CUDA "
            f"{driver[0]}",
        )
    elif driver < torch.cuda:
        yield Finding(
            "driver-minor",
            "driver",
            f"the driver is for CUDA {driver}, torch is for CUDA {torch.cuda}: machine code runs, "
            "but the driver cannot compile PTX of the newer toolkit",
            "update the driver, or build with machine code for this GPU (`kernforge build --arch`)",
            "warning",
        )


def _torch(machine: MachineFacts) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None:
        return
    if torch.failure:
        place = f" as {torch.places[0]}" if torch.places else ""
        other = f" (another one is {', '.join(torch.places[1:])})" if torch.places[1:] else ""
        yield Finding(
            "torch-import",
            "torch",
            f"torch is installed{place} but cannot be imported: {torch.failure}{other}",
            "install it again in a fresh virtual environment",
        )
        return
    has_gpu = machine.driver and machine.gpu_devices
    if has_gpu and torch.cuda is None and "rocm" not in torch.version:
        yield Finding(
            "torch-without-cuda",
            "torch",
            f"there is an NVIDIA GPU, but torch {torch.version} is built without CUDA",
            "install a CUDA build of torch from torch's package index",
            "warning",
        )
    if has_gpu and torch.cuda and not torch.gpus:
        yield Finding(
            "no-visible-gpu",
            "torch",
            "the driver is installed, but torch finds no GPU",
            "check CUDA_VISIBLE_DEVICES and the output of nvidia-smi",
        )
    matches = [match for arch in torch.archs if (match := _ARCH_OF_TORCH.fullmatch(arch))]
    code = [Arch(int(m[2]), int(m[3]), m[4], ptx=m[1] == "compute") for m in matches]
    for name, capability in torch.gpus if torch.archs else ():
        if not any(arch.serves(capability) for arch in code):
            yield Finding(
                "gpu-unknown-to-torch",
                "torch",
                f"torch {torch.version} has no code for {name} (compute capability "
                f"{capability}); it has {', '.join(torch.archs)}",
                "install a torch that is built for this GPU: a newer version for a new GPU, an "
                "older version for an old GPU",
            )


def _toolkits(machine: MachineFacts) -> Iterator[Finding]:
    torch = machine.torch.cuda if machine.torch else None
    for variable, version in machine.toolkits:
        if isinstance(version, Problem):
            severity: Severity = "error" if variable else "warning"
            yield Finding("cuda-home", "environment", *version, severity)
        elif variable in {"CUDA_HOME", "CUDA_PATH"} and torch and torch[0] != version[0]:
            yield Finding(
                "cuda-other-major",
                "environment",
                f"{variable} names CUDA {version}, but torch is built for CUDA "
                f"{torch}: kernforge.load and torch's loader refuse it",
                f"name a toolkit of CUDA {torch[0]}, or unset the variable: kernforge then fetches "
                "one",
            )


def _arch_list(machine: MachineFacts) -> Iterator[Finding]:
    """``TORCH_CUDA_ARCH_LIST``: the architectures that the JIT and torch's loader compile for."""
    value = machine.arch_list.strip()
    if not value or value == "native":
        return
    try:
        targets = cuda_arch.listed(value)
    except UsageError as error:
        yield Finding("arch-list", "environment", error.message, error.hint)
        return
    gpus = machine.torch.gpus if machine.torch else ()
    for name, capability in gpus:
        if not any(target.serves(capability) for target in targets):
            number = str(capability)
            yield Finding(
                "arch-list",
                "environment",
                f"TORCH_CUDA_ARCH_LIST is {value!r}, which makes no code for {name} (compute "
                f"capability {number}): modules of kernforge.load and torch's loader cannot run on "
                "it",
                f"unset it to compile for the GPUs of this machine, or add {number}",
            )


def _packages(machine: MachineFacts) -> Iterator[Finding]:
    """Missing packages may be intended: loading needs only the package itself."""
    if machine.missing:
        yield Finding(
            "extra-build",
            "packages",
            f"{', '.join(machine.missing)} {'is' if len(machine.missing) == 1 else 'are'} not "
            "installed: kernels can be loaded here, but not built",
            "run `pip install 'kernforge[build]'`",
            "skipped",
        )
    if machine.torch is None:
        yield Finding(
            "torch-missing",
            "torch",
            "torch is not installed: kernels can be built here, but not loaded, tested or measured",
            "run `pip install torch`",
            "skipped",
        )


def _room(machine: MachineFacts) -> Iterator[Finding]:
    for directory in machine.directories:
        if directory.trouble:
            yield Finding(
                "not-writable",
                directory.path,
                f"{directory.use} cannot be written: {directory.trouble}",
                "change its owner with chown (it is root after a `sudo kernforge`), free some "
                "space, or set KERNFORGE_HOME or TMPDIR to another directory",
            )
        elif directory.free < _DISK_WANTED:
            full = directory.free < _DISK_NEEDED
            yield Finding(
                "disk",
                directory.path,
                f"{directory.free / GB:.1f} GB are free for {directory.use}; a toolkit takes 1 GB, "
                "large builds 10 GB",
                "free some space, make the store smaller with `kernforge cache --trim 5GB`, or set "
                "KERNFORGE_HOME or TMPDIR to another directory",
                "error" if full else "warning",
            )
    if machine.memory < _MEMORY_WANTED:
        yield Finding(
            "memory",
            "memory",
            f"{machine.memory / GB:.1f} GB of memory are free; a large unit takes up to 12 GB",
            "end other programs, raise the container's limit, or build on a larger machine "
            "(`kernforge build --scheduler`)",
            "error" if machine.memory < _MEMORY_NEEDED else "warning",
        )


def _isolation(machine: MachineFacts) -> Iterator[Finding]:
    if machine.sandbox:
        reason, hint = machine.sandbox
        yield Finding(
            "sandbox",
            "sandbox",
            f"actions cannot be isolated from files that are not their inputs: {reason}",
            hint,
            "warning",
        )


def _network(machine: MachineFacts) -> Iterator[Finding]:
    for url, trouble in machine.unreachable.items():
        yield Finding(
            "index",
            url,
            f"the package index does not answer: {trouble}",
            "check pip's configuration (`pip config list`), the proxy and the network; builds "
            "whose toolchain is in the store work without the index",
            "warning",
        )

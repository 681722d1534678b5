# SPDX-License-Identifier: Apache-2.0
"""Findings about a machine, from its facts: what is wrong for kernels, and what to do.

``examine`` collects the facts. An ``error`` stops builds or makes kernels fail on this machine, a
``warning`` causes problems later or in other tools, ``skipped`` could not be examined.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain

from kernforge.artifact.version import Version2
from kernforge.check.finding import Finding, Severity
from kernforge.doctor.facts import GB, IndexFacts, MachineFacts
from kernforge.errors import ManifestError
from kernforge.system import extras
from kernforge.toolchain import cuda_arch
from kernforge.toolchain.cuda_arch import Arch

# A CUDA toolkit and the headers of one torch take 1 GB of the store, a large build several GB more.
_DISK_NEEDED, _DISK_WANTED = GB, 10 * GB
# Memory that nvcc takes for a unit with torch's headers and one architecture.
_COMPILER = 4 * GB
# Heavy units take 1 to 12 GB in nvcc.
_MEMORY_NEEDED, _MEMORY_WANTED = GB, 8 * GB
_OLDEST_GLIBC = Version2(2, 28)
_ARCH_OF_TORCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def diagnose(machine: MachineFacts) -> tuple[Finding, ...]:
    """All findings, errors first."""
    rules: tuple[Callable[[MachineFacts], Iterator[Finding]], ...] = (
        *(_system, _compiler, _driver, _torch, _toolkits, _max_jobs, _arch_list, _packages),
        *(_room, _isolation, _tls, _network, _store),
    )
    findings = chain.from_iterable(rule(machine) for rule in rules)
    order = {"error": 0, "warning": 1, "skipped": 2}
    return tuple(sorted(findings, key=lambda finding: order[finding.severity]))


def _system(machine: MachineFacts) -> Iterator[Finding]:
    if machine.system != "Linux" or machine.cpu not in {"x86_64", "aarch64"}:
        yield _finding(
            "system",
            "error",
            "system",
            "kernels are built on Linux with x86_64 or aarch64; this machine has "
            f"{machine.system} with {machine.cpu}",
            "build on a Linux machine; published kernels can be loaded here",
        )
    elif machine.glibc is None or machine.glibc < _OLDEST_GLIBC:
        library = f"glibc {machine.glibc}" if machine.glibc else "not glibc"
        yield _finding(
            "glibc",
            "error",
            "system",
            f"the C library is {library}; kernels and torch need glibc {_OLDEST_GLIBC} or newer",
            "use a newer Linux distribution, or a container with one",
        )


def _compiler(machine: MachineFacts) -> Iterator[Finding]:
    message, hint = machine.gcc_trouble
    if message:
        yield _finding("compiler", "error", "compiler", message, hint)
        return
    if machine.cxx_headers:
        yield _finding(
            "cxx-headers",
            "error",
            "compiler",
            f"the compiler cannot compile a C++20 file: {machine.cxx_headers}",
            "install the C++ library's headers: `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++ libstdc++-devel` (Fedora, RHEL)",
        )
    if not machine.static_libstdcxx:
        yield _finding(
            "static-libstdcxx",
            "warning",
            "compiler",
            "the compiler has no libstdc++.a, so kernels depend on the C++ library of the machine "
            "that loads them",
            "`dnf install libstdc++-static` (Fedora, RHEL); Debian's g++ includes it",
        )
    if not machine.has_python_headers:
        yield _finding(
            "python-headers",
            "warning",
            "compiler",
            f"{machine.python_headers}/Python.h is missing; bindings that include it do not "
            "compile",
            "`apt install python3-dev` (Debian, Ubuntu), `dnf install python3-devel` (Fedora), or "
            "use torch's stable ABI in the binding and include no Python header",
        )


def _driver(machine: MachineFacts) -> Iterator[Finding]:
    torch, driver = machine.torch, machine.driver
    if machine.gpu_devices and driver is None:
        yield _finding(
            "driver-library",
            "error",
            "driver",
            "the system has NVIDIA GPU devices, but libcuda.so.1 cannot be loaded",
            "install the user-space driver of the same version as the kernel driver; start a "
            "container with the NVIDIA container toolkit (`--gpus all`)",
        )
    if not driver or not torch or torch.failure or not torch.cuda:
        return
    if driver[0] < torch.cuda[0]:
        yield _finding(
            "driver-too-old",
            "error",
            "driver",
            f"the driver is for CUDA {driver}, but torch {torch.version} is for CUDA {torch.cuda}",
            f"update the driver to one for CUDA {torch.cuda[0]}, or install a torch for CUDA "
            f"{driver[0]}",
        )
    elif driver < torch.cuda:
        yield _finding(
            "driver-minor",
            "warning",
            "driver",
            f"the driver is for CUDA {driver}, torch is for CUDA {torch.cuda}: machine code runs, "
            "but the driver cannot compile PTX of the newer toolkit",
            "update the driver, or build with machine code for this GPU (`kernforge build --arch`)",
        )


def _torch(machine: MachineFacts) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None:
        return
    if torch.failure:
        yield _finding(
            "torch-import",
            "error",
            "torch",
            f"torch is installed but cannot be imported: {torch.failure}",
            "install it again in a fresh virtual environment",
        )
        return
    if (
        machine.driver
        and machine.gpu_devices
        and torch.cuda is None
        and "rocm" not in torch.version
    ):
        yield _finding(
            "torch-without-cuda",
            "warning",
            "torch",
            f"there is an NVIDIA GPU, but torch {torch.version} is built without CUDA",
            "install a CUDA build of torch from torch's package index",
        )
    if torch.cuda and machine.driver and machine.gpu_devices and not torch.gpus:
        yield _finding(
            "no-visible-gpu",
            "error",
            "torch",
            "the driver is installed, but torch finds no GPU",
            "check CUDA_VISIBLE_DEVICES and the output of nvidia-smi",
        )
    found = [match for arch in torch.archs if (match := _ARCH_OF_TORCH.fullmatch(arch))]
    code = [Arch(int(m[2]), int(m[3]), m[4], ptx=m[1] == "compute") for m in found]
    for name, capability in torch.gpus if torch.archs else ():
        if not any(arch.serves(capability) for arch in code):
            yield _finding(
                "gpu-unknown-to-torch",
                "error",
                "torch",
                f"torch {torch.version} has no code for {name} (compute capability "
                f"{capability}); it has {', '.join(torch.archs)}",
                "install a torch that is built for this GPU: a newer version for a new GPU, an "
                "older version for an old GPU",
            )


def _toolkits(machine: MachineFacts) -> Iterator[Finding]:
    torch = machine.torch.cuda if machine.torch else None
    for toolkit in machine.toolkits:
        reader = "builds" if toolkit.variable == "KERNFORGE_CUDA_HOME" else "kernforge.load"
        message, hint = toolkit.trouble
        if message:
            severity: Severity = "error" if toolkit.variable else "warning"
            message = f"{message}; {reader} cannot use it" if reader == "builds" else message
            yield _finding("cuda-home", severity, "environment", message, hint)
        elif (
            toolkit.variable
            and reader != "builds"
            and torch
            and toolkit.version
            and torch[0] != toolkit.version[0]
        ):
            yield _finding(
                "cuda-other-major",
                "error",
                "environment",
                f"{toolkit.variable} names CUDA {toolkit.version}, but torch is built for CUDA "
                f"{torch}: kernforge.load and torch's loader refuse it",
                f"name a toolkit of CUDA {torch[0]}, or unset the variable: kernforge then fetches "
                "one",
            )


def _max_jobs(machine: MachineFacts) -> Iterator[Finding]:
    """``MAX_JOBS`` is the number of compilers that the JIT and torch's loader run at once."""
    value = machine.max_jobs.strip()
    if not value:
        return
    if not value.isdecimal():
        yield _finding(
            "max-jobs",
            "error",
            "environment",
            f"MAX_JOBS is {value!r}, which is not a number: kernforge.load refuses it, "
            "torch's loader ignores it",
            "set it to a number of compilers, or unset it for one per core",
        )
    elif int(value) == 0:
        yield _finding(
            "max-jobs",
            "warning",
            "environment",
            "MAX_JOBS is 0: kernforge.load runs one job per core, torch's loader one per "
            "file, without a memory limit",
            "unset it, or set it to a number of compilers",
        )
    elif int(value) > 1 and int(value) * _COMPILER > machine.memory:
        jobs = max(1, machine.memory // _COMPILER)
        yield _finding(
            "max-jobs",
            "warning",
            "environment",
            f"MAX_JOBS is {value}: {value} units with torch's headers take about "
            f"{int(value) * _COMPILER // GB} GB, and {machine.memory / GB:.1f} GB are free. "
            "kernforge starts as many as fit into the memory, torch's loader starts all of them",
            f"set MAX_JOBS={jobs}",
        )


def _arch_list(machine: MachineFacts) -> Iterator[Finding]:
    """``TORCH_CUDA_ARCH_LIST``: the architectures that the JIT and torch's loader compile for."""
    value = machine.arch_list.strip()
    if not value or value == "native":
        return
    try:
        targets = cuda_arch.listed(value)
    except ManifestError as error:
        yield _finding(
            "arch-list",
            "error",
            "environment",
            error.message,
            error.hint,
        )
        return
    gpus = machine.torch.gpus if machine.torch else ()
    for name, capability in gpus:
        if not any(target.serves(capability) for target in targets):
            number = str(capability)
            yield _finding(
                "arch-list",
                "error",
                "environment",
                f"TORCH_CUDA_ARCH_LIST is {value!r}, which makes no code for {name} (compute "
                f"capability {number}): modules of kernforge.load and torch's loader cannot run on "
                "it",
                f"unset it to compile for the GPUs of this machine, or add {number}",
            )
    used = [
        target for target in targets if any(target.serves(capability) for _, capability in gpus)
    ]
    if used and len(used) < len(targets):
        rest = [str(target) for target in targets if target not in used]
        yield _finding(
            "arch-list",
            "warning",
            "environment",
            f"TORCH_CUDA_ARCH_LIST has {', '.join(rest)}, which no GPU of this machine "
            "needs: each build of kernforge.load and torch's loader compiles for them too",
            "unset it during development; `kernforge build` takes architectures from build.toml",
        )


def _packages(machine: MachineFacts) -> Iterator[Finding]:
    """Missing packages may be intended: loading needs only the package itself."""
    if machine.missing:
        yield _finding(
            "extra-build",
            "skipped",
            "packages",
            f"{', '.join(machine.missing)} {'is' if len(machine.missing) == 1 else 'are'} not "
            "installed: kernels can be loaded here, but not built",
            "run `pip install 'kernforge[build]'`",
        )
    if machine.torch is None:
        yield _finding(
            "torch-missing",
            "skipped",
            "torch",
            "torch is not installed: kernels can be built here, but not loaded, tested or measured",
            "run `pip install torch`",
        )


def _room(machine: MachineFacts) -> Iterator[Finding]:
    for directory in machine.directories:
        if directory.trouble:
            yield _finding(
                "not-writable",
                "warning" if directory.instead else "error",
                directory.path,
                f"{directory.use} cannot be written: {directory.trouble}"
                + (f"; {directory.instead}" if directory.instead else ""),
                "check its owner and the free space of the disk, or set KERNFORGE_HOME or TMPDIR "
                "to another directory",
            )
        elif directory.free < _DISK_WANTED:
            full = directory.free < _DISK_NEEDED
            yield _finding(
                "disk",
                "error" if full else "warning",
                directory.path,
                f"{directory.free / GB:.1f} GB are free for {directory.use}; a toolkit takes 1 GB, "
                "large builds 10 GB",
                "free some space, make the store smaller with `kernforge cache --trim 5GB`, or set "
                "KERNFORGE_HOME or TMPDIR to another directory",
            )
    if machine.memory < _MEMORY_WANTED:
        yield _finding(
            "memory",
            "error" if machine.memory < _MEMORY_NEEDED else "warning",
            "memory",
            f"{machine.memory / GB:.1f} GB of memory are free; a large unit takes up to 12 GB",
            "end other programs, raise the container's limit, or build on a larger machine "
            "(`kernforge build --scheduler`)",
        )


def _isolation(machine: MachineFacts) -> Iterator[Finding]:
    reason, remedy = machine.sandbox
    if reason:
        yield _finding(
            "sandbox",
            "warning",
            "sandbox",
            f"actions cannot be isolated from files that are not their inputs: {reason}",
            remedy,
        )


def _tls(machine: MachineFacts) -> Iterator[Finding]:
    if not machine.tls:
        return
    needed = machine.indexes is None or any(map(_has_tls, machine.indexes))
    yield _finding(
        "tls",
        "error" if needed else "warning",
        "python",
        f"the module ssl of this Python cannot be imported: {machine.tls}; package indexes and "
        "hubs with https://, and farms, cannot be reached",
        extras.TLS_HINT,
    )


def _network(machine: MachineFacts) -> Iterator[Finding]:
    if machine.indexes is None:
        yield _finding(
            "index",
            "skipped",
            "network",
            "the package indexes were not contacted",
            "install the packages above and run without --offline"
            if machine.missing
            else "run without --offline",
        )
        return
    for index in machine.indexes:
        if index.trouble and not (machine.tls and _has_tls(index)):
            yield _finding(
                "index",
                "warning",
                index.url,
                f"the package index does not answer: {index.trouble}",
                "check pip's configuration (`pip config list`), the proxy and the network; builds "
                "whose toolchain is in the store work without the index",
            )


def _has_tls(index: IndexFacts) -> bool:
    return index.url.startswith("https:")


def _store(machine: MachineFacts) -> Iterator[Finding]:
    for path in machine.foreign:
        yield _finding(
            "store-foreign",
            "error",
            path,
            "this user may not write to this directory of the store, so files cannot be added to "
            "it",
            "change its owner with chown (it is often root after a `sudo kernforge`) or its mode, "
            "or set KERNFORGE_HOME to another directory",
        )


def _finding(rule: str, severity: Severity, where: str, message: str, hint: str) -> Finding:
    return Finding(rule=rule, severity=severity, where=where, message=message, hint=hint)

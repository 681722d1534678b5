# SPDX-License-Identifier: Apache-2.0
"""Findings about a machine, from its facts: what is wrong for kernels, and what to do.

``examine`` collects the facts. An ``error`` stops builds or makes kernels fail on this machine, a
``warning`` causes problems later or in other tools, ``skipped`` could not be examined.
"""

from __future__ import annotations

import re
from itertools import chain
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.check.finding import Finding
from kernforge.doctor import environment_rules
from kernforge.doctor.facts import GB
from kernforge.system import extras
from kernforge.toolchain.cuda_arch import Arch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.check.finding import Severity
    from kernforge.doctor.facts import IndexFacts, MachineFacts

# A CUDA toolkit and the headers of one torch take 1 GB of the store, a large build several GB more.
_DISK_NEEDED, _DISK_WANTED = GB, 10 * GB
# Heavy units take 1 to 12 GB in nvcc.
_MEMORY_NEEDED, _MEMORY_WANTED = GB, 8 * GB
_OLDEST_GLIBC = Version2(2, 28)
_ARCH_OF_TORCH = re.compile(r"(sm|compute)_(\d+)(\d)([af]?)")


def diagnose(machine: MachineFacts) -> tuple[Finding, ...]:
    """All findings, errors first."""
    rules = (_system, _compiler, _abi, _driver, _torch, _toolkit, *environment_rules.RULES, _room)
    rules += (_isolation, _locks, _tls, _network, _store)
    findings = chain.from_iterable(rule(machine) for rule in rules)
    order = {"error": 0, "warning": 1, "skipped": 2}
    return tuple(sorted(findings, key=lambda finding: order[finding.severity]))


def stale(machine: MachineFacts) -> tuple[str, ...]:
    """Lock files that no process holds, so that processes that wait for them wait forever."""
    return tuple(lock.path for lock in machine.locks if lock.held is False)


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
            f"{machine.python_headers}/Python.h is missing; bindings that include it do not compile",
            "`apt install python3-dev` (Debian, Ubuntu), `dnf install python3-devel` (Fedora), or "
            "use torch's stable ABI in the binding and include no Python header",
        )


def _abi(machine: MachineFacts) -> Iterator[Finding]:
    torch = machine.torch
    if torch and not torch.failure and not torch.cxx11:
        yield _finding(
            "old-abi",
            "warning",
            "torch",
            f"torch {torch.version} uses the C++ ABI from before GCC 5; kernels that are built now "
            "for torch's full ABI cannot be loaded",
            "install torch 2.7 or later from torch's package index, or use kernels for torch's "
            "stable ABI",
        )
    for value, new_abi in (("=0", False), ("=1", True)):
        if f"_GLIBCXX_USE_CXX11_ABI{value}" not in machine.cxxflags.replace(" ", ""):
            continue
        if torch and not torch.failure and torch.cxx11 is not new_abi:
            yield _finding(
                "abi-flag",
                "error",
                "environment",
                f"CXXFLAGS sets _GLIBCXX_USE_CXX11_ABI{value}, but torch {torch.version} is built "
                "with the other value; extensions get undefined symbols",
                "remove the flag from CXXFLAGS: the build tools set the value that torch needs",
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
                "install a torch that is built for this GPU: a newer version for a new GPU, an older "
                "version for an old GPU",
            )


def _toolkit(machine: MachineFacts) -> Iterator[Finding]:
    note = "kernforge installs its own compiler; this concerns torch.utils.cpp_extension and CMake"
    if machine.cuda_home and not machine.has_cuda_home:
        yield _finding(
            "cuda-home",
            "warning",
            "environment",
            f"CUDA_HOME is {machine.cuda_home}, which has no bin/nvcc",
            f"unset it, or set it to the toolkit's directory. {note}",
        )
    nvcc, torch = machine.nvcc, machine.torch
    if nvcc is None:
        return
    if nvcc.version is None:
        yield _finding(
            "nvcc-broken",
            "warning",
            "nvcc",
            f"{nvcc.path} does not run",
            f"install the toolkit again. {note}",
        )
        return
    if torch and torch.cuda and torch.cuda[0] != nvcc.version[0]:
        yield _finding(
            "nvcc-other-major",
            "warning",
            "nvcc",
            f"{nvcc.path} is of CUDA {nvcc.version}, but torch is built for CUDA {torch.cuda}: "
            "torch refuses to build extensions",
            f"install CUDA {torch.cuda[0]}, or a torch for CUDA {nvcc.version[0]}. {note}",
        )
    if machine.gcc and nvcc.newest_gcc and machine.gcc > nvcc.newest_gcc:
        yield _finding(
            "gcc-too-new",
            "warning",
            "nvcc",
            f"the host compiler is GCC {machine.gcc}, but CUDA {nvcc.version} accepts only GCC "
            f"{nvcc.newest_gcc} and older",
            f"install g++-{nvcc.newest_gcc} and set CXX to it, or use a newer CUDA",
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
                "check its owner and the free space of the disk, or set KERNFORGE_HOME or TMPDIR to "
                "another directory",
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


def _locks(machine: MachineFacts) -> Iterator[Finding]:
    for lock in machine.locks:
        if lock.held is False:
            yield _finding(
                "stale-lock",
                "error",
                lock.path,
                "the process that made this lock of torch.utils.cpp_extension has ended; the next "
                "torch.utils.cpp_extension.load of that name waits forever",
                "run `kernforge doctor --fix` to remove it",
            )
        elif lock.held is None:
            yield _finding(
                "unclear-lock",
                "skipped",
                lock.path,
                "it cannot be found out whether a process holds this lock of "
                "torch.utils.cpp_extension: the lock is another user's, or other machines share "
                "the file system",
                "remove it by hand if no build of that name is running on any machine",
            )


def _tls(machine: MachineFacts) -> Iterator[Finding]:
    if not machine.tls:
        return
    needed = machine.indexes is None or any(map(_has_tls, machine.indexes))
    yield _finding(
        "tls",
        "error" if needed else "warning",
        "python",
        f"the module ssl of this Python cannot be imported: {machine.tls}; package indexes and hubs "
        "with https://, and farms, cannot be reached",
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
    for path in machine.damaged:
        yield _finding(
            "store-damaged",
            "error",
            path,
            "this tree of the store is incomplete; another program than kernforge changed it",
            "run `kernforge cache --clear toolchains` or `--clear actions`; builds make it again",
        )
    for path in machine.foreign:
        yield _finding(
            "store-foreign",
            "error",
            path,
            "this user may not write to this directory of the store, so files cannot be added to it",
            "change its owner with chown (it is often root after a `sudo kernforge`) or its mode, or "
            "set KERNFORGE_HOME to another directory",
        )


def _finding(rule: str, severity: Severity, where: str, message: str, hint: str) -> Finding:
    return Finding(rule=rule, severity=severity, where=where, message=message, hint=hint)

# SPDX-License-Identifier: Apache-2.0
"""What is wrong with a machine for kernels, and what to do: decisions over facts, nothing else.

``checkup`` collects the facts. ``error`` stops builds or makes kernels fail here, ``warning`` will
hurt sooner or later or in other tools, ``skipped`` could not be looked at.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.check.finding import Finding
from kernforge.doctor import environment_rules
from kernforge.doctor.facts import GB

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.check.finding import Severity
    from kernforge.doctor.facts import Machine

# A CUDA toolkit and the headers of one torch take 1 GB of the store, a large build several more.
_DISK_NEEDED, _DISK_WANTED = GB, 10 * GB
# Heavy units take 1 to 12 GB in nvcc.
_MEMORY_NEEDED, _MEMORY_WANTED = GB, 8 * GB
_OLDEST_GLIBC = Version2(2, 28)


def diagnose(machine: Machine) -> tuple[Finding, ...]:
    """Everything that is wrong, what stops most first."""
    rules = (_system, _compiler, _abi, _driver, _torch, _toolkit, *environment_rules.RULES, _room)
    rules += (_isolation, _locks, _network, _store)
    found = chain.from_iterable(rule(machine) for rule in rules)
    order = {"error": 0, "warning": 1, "skipped": 2}
    return tuple(sorted(found, key=lambda finding: order[finding.severity]))


def stale(machine: Machine) -> tuple[str, ...]:
    """Lock files that nobody holds, so that whoever waits for them waits for ever."""
    return tuple(lock.path for lock in machine.locks if lock.held is False)


def _system(machine: Machine) -> Iterator[Finding]:
    if machine.system != "Linux" or machine.cpu not in {"x86_64", "aarch64"}:
        yield _say(
            "system",
            "error",
            "system",
            f"kernels are built on x86_64 or aarch64 Linux; this is {machine.cpu} {machine.system}",
            "build on a Linux machine; loading published kernels works here",
        )
    elif machine.glibc is None or machine.glibc < _OLDEST_GLIBC:
        what = f"glibc {machine.glibc}" if machine.glibc else "not glibc"
        yield _say(
            "glibc",
            "error",
            "system",
            f"the C library is {what}; kernels and torch need glibc {_OLDEST_GLIBC} or newer",
            "use a newer distribution, or a container with one",
        )


def _compiler(machine: Machine) -> Iterator[Finding]:
    message, hint = machine.gcc_trouble
    if message:
        yield _say("compiler", "error", "compiler", message, hint)
        return
    if machine.cxx_headers:
        yield _say(
            "cxx-headers",
            "error",
            "compiler",
            f"the compiler cannot compile a C++20 file: {machine.cxx_headers}",
            "install the C++ library's headers: `apt install g++` (Debian, Ubuntu), "
            "`dnf install gcc-c++ libstdc++-devel` (Fedora, RHEL)",
        )
    if not machine.static_libstdcxx:
        yield _say(
            "static-libstdcxx",
            "warning",
            "compiler",
            "the compiler has no libstdc++.a, so kernels depend on the C++ library of the machine "
            "that loads them",
            "`dnf install libstdc++-static` (Fedora, RHEL); Debian's g++ brings it",
        )
    if not machine.has_python_headers:
        yield _say(
            "python-headers",
            "warning",
            "compiler",
            f"{machine.python_headers}/Python.h is not there; bindings that include it do not build",
            "`apt install python3-dev` (Debian, Ubuntu), `dnf install python3-devel` (Fedora), or "
            "keep the binding to torch's stable ABI and include no Python header",
        )


def _abi(machine: Machine) -> Iterator[Finding]:
    torch = machine.torch
    if torch and not torch.failure and not torch.cxx11:
        yield _say(
            "old-abi",
            "warning",
            "torch",
            f"torch {torch.version} uses the C++ ABI from before GCC 5; no kernel that is built "
            "today for torch's full ABI loads into it",
            "install a torch from its own index at version 2.7 or later; kernels of the stable ABI "
            "need no more than that they were built for it",
        )
    for value, meant in (("=0", False), ("=1", True)):
        if f"_GLIBCXX_USE_CXX11_ABI{value}" not in machine.cxxflags.replace(" ", ""):
            continue
        if torch and not torch.failure and torch.cxx11 is not meant:
            yield _say(
                "abi-flag",
                "error",
                "environment",
                f"CXXFLAGS sets _GLIBCXX_USE_CXX11_ABI{value} and torch {torch.version} is built "
                "with the other; extensions end in undefined symbols",
                "take the flag out of CXXFLAGS: the build tools know what torch needs",
            )


def _driver(machine: Machine) -> Iterator[Finding]:
    torch, driver = machine.torch, machine.driver
    if machine.gpu_devices and driver is None:
        yield _say(
            "driver-library",
            "error",
            "driver",
            "the kernel shows NVIDIA GPUs, but libcuda.so.1 cannot be loaded",
            "install the driver's user part of the same version; in a container, start it with "
            "the NVIDIA container toolkit (`--gpus all`)",
        )
    if not driver or not torch or torch.failure or not torch.cuda:
        return
    if driver[0] < torch.cuda[0]:
        yield _say(
            "driver-too-old",
            "error",
            "driver",
            f"the driver is for CUDA {driver}, torch {torch.version} for CUDA {torch.cuda}",
            f"update the driver to one for CUDA {torch.cuda[0]}, or install a torch for CUDA "
            f"{driver[0]}",
        )
    elif driver < torch.cuda:
        yield _say(
            "driver-minor",
            "warning",
            "driver",
            f"the driver is for CUDA {driver}, torch for {torch.cuda}: machine code "
            "runs, PTX of the newer toolkit cannot be compiled",
            "update the driver, or build with machine code for this GPU (`kernforge build --arch`)",
        )


def _torch(machine: Machine) -> Iterator[Finding]:
    torch = machine.torch
    if torch is None:
        return
    if torch.failure:
        yield _say(
            "torch-import",
            "error",
            "torch",
            f"torch is installed and cannot be imported: {torch.failure}",
            "install it again in a fresh virtual environment",
        )
        return
    if (
        machine.driver
        and machine.gpu_devices
        and torch.cuda is None
        and "rocm" not in torch.version
    ):
        yield _say(
            "torch-without-cuda",
            "warning",
            "torch",
            f"there is an NVIDIA GPU, and torch {torch.version} is built without CUDA",
            "install the CUDA build of torch from its own index",
        )
    if torch.cuda and machine.driver and machine.gpu_devices and not torch.gpus:
        yield _say(
            "no-visible-gpu",
            "error",
            "torch",
            "the driver is there, but torch sees no GPU",
            "look at CUDA_VISIBLE_DEVICES and at the output of nvidia-smi",
        )
    for name, capability in torch.gpus if torch.archs else ():
        if not _runs(capability, torch.archs):
            yield _say(
                "gpu-unknown-to-torch",
                "error",
                "torch",
                f"torch {torch.version} has no code for {name} (compute capability "
                f"{capability}); it has {', '.join(torch.archs)}",
                "install a torch that is built for this GPU: a newer one for a new GPU, an older "
                "one for an old GPU",
            )


def _runs(capability: Version2, archs: tuple[str, ...]) -> bool:
    """Whether a GPU runs some of this code: the same major's that is not newer, or older PTX."""
    for arch in archs:
        kind, _, digits = arch.partition("_")
        number = digits.rstrip("af")
        if not number.isdigit():
            continue
        has = Version2(int(number[:-1]), int(number[-1]))
        if kind == "compute" and has <= capability:
            return True
        if kind == "sm" and has[0] == capability[0] and has[1] <= capability[1]:
            return True
    return False


def _toolkit(machine: Machine) -> Iterator[Finding]:
    own = "kernforge brings its own compiler; this concerns torch.utils.cpp_extension and CMake"
    if machine.cuda_home and not machine.has_cuda_home:
        yield _say(
            "cuda-home",
            "warning",
            "environment",
            f"CUDA_HOME is {machine.cuda_home}, and there is no bin/nvcc in it",
            f"unset it, or name the toolkit's directory. {own}",
        )
    nvcc, torch = machine.nvcc, machine.torch
    if nvcc is None:
        return
    if nvcc.version is None:
        yield _say(
            "nvcc-broken",
            "warning",
            "nvcc",
            f"{nvcc.path} does not run",
            f"install the toolkit again. {own}",
        )
        return
    if torch and torch.cuda and torch.cuda[0] != nvcc.version[0]:
        yield _say(
            "nvcc-other-major",
            "warning",
            "nvcc",
            f"{nvcc.path} is CUDA {nvcc.version}, torch is built for CUDA "
            f"{torch.cuda}: extensions are refused",
            f"install CUDA {torch.cuda[0]}, or a torch for CUDA {nvcc.version[0]}. {own}",
        )
    if machine.gcc and nvcc.newest_gcc and machine.gcc > nvcc.newest_gcc:
        yield _say(
            "gcc-too-new",
            "warning",
            "nvcc",
            f"the host compiler is GCC {machine.gcc}, and CUDA {nvcc.version} accepts none "
            f"newer than {nvcc.newest_gcc}",
            f"install g++-{nvcc.newest_gcc} and name it in CXX, or use a newer CUDA",
        )


def _room(machine: Machine) -> Iterator[Finding]:
    for place in machine.places:
        if place.trouble:
            yield _say(
                "not-writable",
                "warning" if place.instead else "error",
                place.path,
                f"{place.use} cannot be written: {place.trouble}"
                + (f"; {place.instead}" if place.instead else ""),
                "check who owns it and whether the disk is full, or choose another place with "
                "KERNFORGE_HOME or TMPDIR",
            )
        elif place.free < _DISK_WANTED:
            tight = place.free < _DISK_NEEDED
            yield _say(
                "disk",
                "error" if tight else "warning",
                place.path,
                f"{place.free / GB:.1f} GB are free for {place.use}; a toolkit takes 1 GB, large "
                "builds 10 GB",
                "free some, make the store smaller with `kernforge cache --trim 5GB`, or choose "
                "another place with KERNFORGE_HOME or TMPDIR",
            )
    if machine.memory < _MEMORY_WANTED:
        yield _say(
            "memory",
            "error" if machine.memory < _MEMORY_NEEDED else "warning",
            "memory",
            f"{machine.memory / GB:.1f} GB of memory are left; a heavy unit takes up to 12 GB",
            "end other programs, raise the container's limit, or build on a larger machine "
            "(`kernforge build --scheduler`)",
        )


def _isolation(machine: Machine) -> Iterator[Finding]:
    reason, remedy = machine.sandbox
    if reason:
        yield _say(
            "sandbox",
            "warning",
            "sandbox",
            f"actions cannot be kept to their inputs here: {reason}",
            remedy,
        )


def _locks(machine: Machine) -> Iterator[Finding]:
    for lock in machine.locks:
        if lock.held is False:
            yield _say(
                "stale-lock",
                "error",
                lock.path,
                "whoever made this lock of torch.utils.cpp_extension is gone; the next "
                "torch.utils.cpp_extension.load of that name waits for ever",
                "`kernforge doctor --fix` removes it",
            )
        elif lock.held is None:
            yield _say(
                "unclear-lock",
                "skipped",
                lock.path,
                "whether a process holds this lock of torch.utils.cpp_extension cannot be known: "
                "it is another user's, or on a file system that other machines share",
                "remove it by hand if no build of that name runs anywhere",
            )


def _network(machine: Machine) -> Iterator[Finding]:
    if machine.indexes is None:
        yield _say(
            "index", "skipped", "network", "no package index was asked", "leave out --offline"
        )
        return
    for index in machine.indexes:
        if index.trouble:
            yield _say(
                "index",
                "warning",
                index.url,
                f"the package index does not answer: {index.trouble}",
                "check pip's configuration (`pip config list`), the proxy and the network; builds "
                "whose toolchain is in the store work without it",
            )


def _store(machine: Machine) -> Iterator[Finding]:
    for path in machine.damaged:
        yield _say(
            "store-damaged",
            "error",
            path,
            "this tree of the store is not whole; something else than kernforge changed it",
            "`kernforge cache --clear toolchains` or `--clear actions`; it is made again when needed",
        )
    for path in machine.foreign:
        yield _say(
            "store-foreign",
            "error",
            path,
            "this part of the store belongs to another user, so nothing can be added to it",
            "give it back with chown (it is often root's after a `sudo kernforge`), or choose "
            "another place with KERNFORGE_HOME",
        )


def _say(rule: str, severity: Severity, where: str, message: str, hint: str) -> Finding:
    return Finding(rule=rule, severity=severity, where=where, message=message, hint=hint)

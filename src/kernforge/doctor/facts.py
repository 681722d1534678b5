# SPDX-License-Identifier: Apache-2.0
"""What ``kernforge doctor`` knows of a machine, as values; ``checkup`` collects, ``doctor`` decides."""

from __future__ import annotations

from dataclasses import dataclass

from kernforge.artifact.version import Version2

GB = 10**9
_GLIBC = Version2(2, 39)


@dataclass(frozen=True, slots=True, kw_only=True)
class Torch:
    """The installed torch, as a process of its own told it.

    Attributes:
        version: as ``2.13.0+cpu``.
        cuda: what it is built for; None for a build without CUDA.
        cxx11: whether it uses the new C++ ABI.
        archs: device code that it carries, as ``sm_90`` and ``compute_90``.
        gpus: name and compute capability of each GPU that it sees.
        failure: why it cannot be imported; the rest says nothing then.
    """

    version: str = ""
    cuda: Version2 | None = None
    cxx11: bool = True
    archs: tuple[str, ...] = ()
    gpus: tuple[tuple[str, Version2], ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nvcc:
    """An nvcc that other tools would find.

    Attributes:
        path: the program.
        version: major and minor; None when it does not run.
        newest_gcc: the newest major version of GCC that its headers accept; None when unknown.
    """

    path: str
    version: Version2 | None
    newest_gcc: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory that must take files.

    Attributes:
        use: what it is for.
        path: where.
        free: bytes left.
        trouble: why nothing can be written there; empty when it can.
        instead: what is used in its place then, and what that costs; empty when nothing can be.
    """

    use: str
    path: str
    free: int
    trouble: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLock:
    """A lock file of ``torch.utils.cpp_extension``; who waits for it waits as long as it exists.

    Attributes:
        path: the file.
        held: whether some process has it open; None when that cannot be known.
    """

    path: str
    held: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Index:
    """A package index of pip's configuration.

    Attributes:
        url: without credentials.
        trouble: why it does not answer; empty when it does.
    """

    url: str
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """Everything that the decisions go by.

    Attributes:
        system: as ``Linux``.
        cpu: as ``x86_64``.
        glibc: version of the C library; None where there is another one.
        gcc: major version of the host compiler; 0 without one.
        gcc_trouble: why there is none that can serve, and what to do.
        cxx_headers: the compiler's words when it cannot compile a C++20 file; empty when it can.
        static_libstdcxx: whether the compiler has ``libstdc++.a``.
        python_headers: where ``Python.h`` should be.
        has_python_headers: whether it is there.
        cxxflags: the user's own flags in the environment.
        max_jobs: ``MAX_JOBS`` of the environment.
        arch_list: ``TORCH_CUDA_ARCH_LIST`` of the environment.
        nvcc: what other tools find.
        cuda_home: ``CUDA_HOME`` of the environment.
        has_cuda_home: whether a toolkit lies there.
        gpu_devices: whether the kernel's driver shows GPUs.
        driver: CUDA version that the driver is for; None without one.
        torch: None when none is installed.
        places: directories that must take files.
        memory: bytes that can still be used.
        sandbox: why actions cannot be isolated, and what to do; empty when they can.
        locks: of ``torch.utils.cpp_extension``.
        indexes: of pip's configuration; None when nobody asked them.
        damaged: trees of the store that are not whole.
        foreign: paths of the store that this user may not write.
        missing: packages of ``kernforge[build]`` that are not installed.
    """

    system: str
    cpu: str
    glibc: Version2 | None = _GLIBC
    gcc: int = 0
    gcc_trouble: tuple[str, str] = ("", "")
    cxx_headers: str = ""
    static_libstdcxx: bool = True
    python_headers: str = ""
    has_python_headers: bool = True
    cxxflags: str = ""
    max_jobs: str = ""
    arch_list: str = ""
    nvcc: Nvcc | None = None
    cuda_home: str = ""
    has_cuda_home: bool = False
    gpu_devices: bool = False
    driver: Version2 | None = None
    torch: Torch | None = None
    places: tuple[Place, ...] = ()
    memory: int = 64 * GB
    sandbox: tuple[str, str] = ("", "")
    locks: tuple[TorchLock, ...] = ()
    indexes: tuple[Index, ...] | None = ()
    damaged: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

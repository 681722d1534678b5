# SPDX-License-Identifier: Apache-2.0
"""Facts about a machine for ``kernforge doctor``: ``examine`` collects, ``rules`` judges."""

from __future__ import annotations

from dataclasses import dataclass

from kernforge.artifact.version import Version2

GB = 10**9
_GLIBC = Version2(2, 39)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchFacts:
    """The installed torch, as imported by another process.

    Attributes:
        version: version, such as ``2.13.0+cpu``.
        cuda: CUDA version that it is built for; None for a build without CUDA.
        archs: architectures of its device code, such as ``sm_90`` and ``compute_90``.
        gpus: name and compute capability of each visible GPU.
        failure: why it cannot be imported; the other attributes have no meaning then.
    """

    version: str = ""
    cuda: Version2 | None = None
    archs: tuple[str, ...] = ()
    gpus: tuple[tuple[str, Version2], ...] = ()
    failure: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitFacts:
    """A CUDA toolkit that the environment names or has on its PATH.

    Attributes:
        variable: that names it; empty for one on the PATH or in the usual directory.
        version: None if it is no toolkit.
        trouble: why it is none, and what to do.
    """

    variable: str
    version: Version2 | None = None
    trouble: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """A directory that kernforge writes to.

    Attributes:
        free: free space in bytes.
        trouble: why the directory cannot be written; empty if it can.
        instead: what is used instead, and its disadvantage; empty if there is no replacement.
    """

    use: str
    path: str
    free: int
    trouble: str = ""
    instead: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexFacts:
    """A package index of pip's configuration.

    Attributes:
        url: URL without credentials.
        trouble: why the index does not answer; empty if it does.
    """

    url: str
    trouble: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineFacts:
    """All facts about a machine.

    Attributes:
        glibc: version of glibc; None if the C library is another one.
        gcc_trouble: why there is no usable host compiler, and what to do.
        cxx_headers: the compiler's message if it cannot compile a C++20 file; empty if it can.
        static_libstdcxx: whether the compiler has ``libstdc++.a``.
        python_headers: directory where ``Python.h`` should be.
        toolkits: CUDA toolkits, in the order in which they are looked for.
        driver: newest CUDA version of the driver; None without a driver.
        memory: available memory in bytes.
        sandbox: why actions cannot be isolated, and what to do; empty if they can.
        tls: why this Python's module ssl cannot be imported; empty if it can.
        indexes: indexes of pip's configuration; None if they were not examined.
        foreign: paths of the store that this user may not write.
        missing: packages of ``kernforge[build]`` that are not installed.
    """

    system: str
    cpu: str
    glibc: Version2 | None = _GLIBC
    gcc_trouble: tuple[str, str] = ("", "")
    cxx_headers: str = ""
    static_libstdcxx: bool = True
    python_headers: str = ""
    has_python_headers: bool = True
    arch_list: str = ""
    toolkits: tuple[ToolkitFacts, ...] = ()
    gpu_devices: bool = False
    driver: Version2 | None = None
    torch: TorchFacts | None = None
    directories: tuple[Directory, ...] = ()
    memory: int = 64 * GB
    sandbox: tuple[str, str] = ("", "")
    tls: str = ""
    indexes: tuple[IndexFacts, ...] | None = ()
    foreign: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

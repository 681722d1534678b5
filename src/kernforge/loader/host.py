# SPDX-License-Identifier: Apache-2.0
"""The machine and process that kernels are loaded for, as a value.

``probe`` reads it. It imports torch, which a process that loads kernels has anyway.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import platform
import sys
import sysconfig
from dataclasses import dataclass, replace
from typing import Any

from kernforge.artifact.variant import Backend
from kernforge.artifact.version import Version2
from kernforge.errors import RequestError

_PYTHON = Version2(3, 11)
_CPUS = {("darwin", "arm64"): "aarch64", ("windows", "AMD64"): "x86_64"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A process, its torch and its machine, which kernels must fit.

    Attributes:
        cpu: as variant names spell it, ``x86_64`` or ``aarch64``.
        os: ``linux``, ``darwin`` or ``windows``.
        backend: the backend of kernels; only its CUDA version is compared as numbers.
        no_gpu: torch is built for GPUs and sees none, so that builds for the CPU fit too, and come
            first; False before ``probe_to_load``.
        torch: major and minor of the installed torch; None without one.
        cxx11: whether that torch uses the new C++ ABI; None if it has only one.
        tvm_ffi: major and minor of the installed tvm-ffi; None without one.
        macos: major and minor of macOS; None elsewhere.
        capability: compute capability of the current CUDA device; None without one, and before
            ``with_device``, as ``driver`` and ``gcn_arch``.
        driver: newest CUDA version of the driver.
        gcn_arch: architecture of the current ROCm device, as in ``gfx90a``.
    """

    cpu: str
    os: str
    backend: Backend
    no_gpu: bool = False
    torch: Version2 | None = None
    cxx11: bool | None = None
    tvm_ffi: Version2 | None = None
    python: Version2 = _PYTHON
    free_threaded: bool = False
    macos: Version2 | None = None
    capability: Version2 | None = None
    driver: Version2 | None = None
    gcn_arch: str | None = None


@functools.lru_cache(maxsize=8)
def probe(backend: str | None = None) -> Host:
    """Read the host of this process; once for each backend.

    Args:
        backend: ``cpu``, or the one that torch is built for; None takes the latter.
    """
    torch = _torch()
    system = platform.system().lower()
    machine = platform.machine()
    return Host(
        cpu=_CPUS.get((system, machine), machine),
        os=system,
        backend=_choose_backend(backend, _detect_backend(torch)),
        torch=None if torch is None else Version2.leading(torch.__version__),
        cxx11=torch.compiled_with_cxx11_abi() if torch is not None and system == "linux" else None,
        tvm_ffi=_tvm_ffi(),
        python=Version2(*sys.version_info[:2]),
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
        macos=Version2.leading(platform.mac_ver()[0]),
    )


def probe_to_load(backend: str | None = None) -> Host:
    """The host of this process, with a check for a GPU if torch is built for GPUs.

    The same torch is installed on machines without a GPU, where builds for GPUs cannot run.
    """
    host, torch = probe(backend), _torch()
    if backend is not None or torch is None or host.backend.name not in {"cuda", "rocm"}:
        return host
    return replace(host, no_gpu=not torch.cuda.is_available())


def with_device(host: Host) -> Host:
    """The host with the current GPU's capability or architecture, and its driver's version."""
    torch = _torch()
    if host.backend.name == "cuda":
        host = replace(host, driver=driver_version())
    if torch is None or not torch.cuda.is_available():
        return host
    if torch.version.cuda is not None:
        return replace(host, capability=Version2(*torch.cuda.get_device_capability()))
    properties = torch.cuda.get_device_properties(torch.cuda.current_device())
    return replace(host, gcn_arch=properties.gcnArchName)


def has_module(name: str) -> bool:
    """Whether a top-level module can be imported; it is not imported."""
    return name in sys.modules or importlib.util.find_spec(name) is not None


def _torch() -> Any:
    if not has_module("torch"):
        return None
    import torch

    return torch


def _choose_backend(wanted: str | None, detected: Backend) -> Backend:
    if wanted is None or wanted == detected.name:
        return detected
    if wanted == "cpu":
        return Backend("cpu")
    supported = " or ".join(sorted({repr("cpu"), repr(detected.name)}))
    raise RequestError(
        f"Invalid backend {wanted!r}, which this machine does not have",
        hint=f"pass {supported}; another backend needs a torch that is built for it",
    )


def _detect_backend(torch: Any) -> Backend:
    """The backend that torch is built for, in the order in which the hub's client asks."""
    if torch is None:
        version = _cudart_version()
        return Backend("cpu") if version is None else Backend("cuda", version)
    # Plug-ins for TPU and Neuron add themselves to any build of torch, so they go first.
    if hasattr(torch.backends, "tpu"):
        return Backend("tpu")
    if hasattr(torch, "neuron"):
        return Backend("neuron")
    for name, version in (("cuda", torch.version.cuda), ("rocm", torch.version.hip)):
        if version is not None:
            return Backend(name, Version2.leading(version))
    if torch.backends.mps.is_available():
        return Backend("metal")
    # As in 20250301 for oneAPI 2025.3.
    if xpu := getattr(torch.version, "xpu", None):
        return Backend("xpu", Version2(int(xpu[:4]), int(xpu[5:6])))
    return _npu(torch) or Backend("cpu")


def _npu(torch: Any) -> Backend | None:
    name = getattr(torch._C, "_get_privateuse1_backend_name", lambda: "")()  # noqa: SLF001 - no public name
    if name != "npu":
        return None
    collect_env: Any = importlib.import_module("torch_npu.utils.collect_env")
    return Backend("cann", Version2.leading(collect_env.get_cann_version()))


def _cudart_version() -> Version2 | None:
    """Version of the CUDA runtime that the system's linker finds; None without one."""
    import ctypes.util  # noqa: PLC0415 - most processes have torch and never ask

    library = ctypes.util.find_library("cudart")
    return None if library is None else _cuda_version(library, "cudaRuntimeGetVersion")


def driver_version() -> Version2 | None:
    """The newest CUDA version of the driver, which is not initialised by this."""
    library = "nvcuda.dll" if sys.platform == "win32" else "libcuda.so.1"
    return _cuda_version(library, "cuDriverGetVersion")


def _cuda_version(library: str, function: str) -> Version2 | None:
    """The version that a function of a library returns; None without one."""
    import ctypes  # noqa: PLC0415 - only where kernels for CUDA are wanted

    number = ctypes.c_int(0)
    try:
        status = getattr(ctypes.CDLL(library), function)(ctypes.byref(number))
    except (AttributeError, OSError):
        return None
    if status or not number.value:
        return None
    return Version2(number.value // 1000, number.value % 1000 // 10)


def _tvm_ffi() -> Version2 | None:
    """Version of the installed package: importing it would load its library into every process."""
    if not has_module("tvm_ffi"):
        return None
    import importlib.metadata  # noqa: PLC0415 - slow, and few have it

    try:
        return Version2.leading(importlib.metadata.version("apache-tvm-ffi"))
    except importlib.metadata.PackageNotFoundError:
        return None

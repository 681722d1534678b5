# SPDX-License-Identifier: Apache-2.0
"""What is true of a machine that loads kernels, as a value; decisions take it as an argument."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2

if TYPE_CHECKING:
    from kernforge.artifact.variant import Backend

_PYTHON = Version2(3, 11)


@dataclass(frozen=True, slots=True, kw_only=True)
class Host:
    """A process on a machine.

    Attributes:
        cpu: as variant names spell it, ``x86_64`` or ``aarch64``.
        os: ``linux``, ``darwin`` or ``windows``.
        backend: what kernels are wanted for; only its CUDA version is compared as numbers.
        torch: major and minor of the installed torch; None without one.
        cxx11: whether that torch uses the new C++ ABI; None where there is only one.
        tvm_ffi: major and minor of the installed tvm-ffi; None without one.
        python: major and minor of the interpreter.
        free_threaded: whether the interpreter is built without the global lock.
        macos: major and minor of macOS; None elsewhere.
        capability: compute capability of the current CUDA device; None when there is none, or
            nobody asked yet.
        driver: CUDA version that the driver is for; None when there is none, or nobody asked yet.
        gcn_arch: as in ``gfx90a``, of the current ROCm device; likewise.
    """

    cpu: str
    os: str
    backend: Backend
    torch: Version2 | None = None
    cxx11: bool | None = None
    tvm_ffi: Version2 | None = None
    python: Version2 = _PYTHON
    free_threaded: bool = False
    macos: Version2 | None = None
    capability: Version2 | None = None
    driver: Version2 | None = None
    gcn_arch: str | None = None

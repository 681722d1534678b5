# SPDX-License-Identifier: Apache-2.0
"""The door to NVRTC, NVIDIA's compiler of device code as a library.

It comes with CUDA builds of torch and with the toolkit; ``cuda.bindings`` finds and calls it.
NVRTC takes headers as texts, which cuda.core's ``Program`` does not. Both are optional: where one is
missing nvcc compiles.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

from kernforge.build.execute.action import resolve

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.jit.device.plan import DeviceProgram


class RtcError(Exception):
    """NVRTC does not compile a program; the message says why."""


def installed() -> bool:
    """Whether ``cuda.bindings`` is installed; nothing is loaded to find out."""
    try:
        return importlib.util.find_spec("cuda.bindings") is not None
    except ModuleNotFoundError:
        return False


def compile_program(program: DeviceProgram, roots: Mapping[str, str]) -> bytes:
    """Machine code of a program, as a cubin.

    Args:
        roots: real path of each toolchain tree by name.

    Raises:
        RtcError: it cannot be compiled; the message is the compiler's.
    """
    nvrtc = _nvrtc()
    options = [resolve(word, roots).encode() for word in program.options]
    texts = [_bytes(text) for text in program.headers.values()]
    names = [name.encode() for name in program.headers]
    handle = _result(
        nvrtc.nvrtcCreateProgram(
            _bytes(program.text), program.name.encode(), len(names), texts, names
        )
    )
    try:
        (status,) = nvrtc.nvrtcCompileProgram(handle, len(options), options)
        if status:
            log = b" " * _result(nvrtc.nvrtcGetProgramLogSize(handle))
            _result(nvrtc.nvrtcGetProgramLog(handle, log))
            raise RtcError(log.rstrip(b"\0 ").decode(errors="replace"))
        code: bytes = b" " * _result(nvrtc.nvrtcGetCUBINSize(handle))
        _result(nvrtc.nvrtcGetCUBIN(handle, code))
    finally:
        nvrtc.nvrtcDestroyProgram(handle)
    return code


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


def _nvrtc() -> Any:
    try:
        from cuda.bindings import nvrtc  # noqa: PLC0415 - optional, and a tenth of a second
    except ImportError as error:
        raise RtcError(f"cuda.bindings cannot be imported: {error}") from error
    return nvrtc


def _result(answer: tuple[Any, ...]) -> Any:
    """What a call returns after its status."""
    if answer[0]:
        raise RtcError(f"NVRTC fails: {answer[0]}")
    return answer[1] if len(answer) > 1 else None

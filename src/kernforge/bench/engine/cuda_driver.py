# SPDX-License-Identifier: Apache-2.0
"""What the benchmark engine needs of CUDA's driver and torch does not offer, through ctypes.

Memory that two processes share (CUDA driver API, 6.13: memory management, ``cuIpc*``), a kernel
from PTX text that the driver compiles (6.12, 6.22), and the reset of the persisting part of the L2
cache (6.9). Torch must have made the device's primary context before; it is made current here.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from kernforge.errors import MachineError

_HANDLE_BYTES = 64
_LAZY_PEER_ACCESS = 1


class _IpcHandle(ctypes.Structure):
    _fields_ = (("reserved", ctypes.c_char * _HANDLE_BYTES),)


class Driver:
    """The driver of device 0, taken hold of once.

    Raises:
        MachineError: there is no driver, or it refuses.
    """

    def __init__(self) -> None:
        try:
            self._lib = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise MachineError(f"CUDA's driver cannot be loaded: {error}") from error
        self._lib.cuIpcOpenMemHandle_v2.argtypes = (
            ctypes.POINTER(ctypes.c_uint64),
            _IpcHandle,
            ctypes.c_uint,
        )
        # Looked up now: a candidate's code is not loaded yet.
        self._launch, self._wait = self._lib.cuLaunchKernel, self._lib.cuCtxSynchronize
        self._record, self._elapsed = self._lib.cuEventRecord, self._lib.cuEventElapsedTime
        self._wait_event = self._lib.cuEventSynchronize
        self._reset = getattr(self._lib, "cuCtxResetPersistingL2Cache", None)
        context = ctypes.c_void_p()
        self._do("cuInit", 0)
        self._do("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
        self._do("cuCtxSetCurrent", context)

    def _do(self, name: str, *arguments: Any) -> None:
        self._right(name, getattr(self._lib, name)(*arguments))

    def _right(self, name: str, code: int) -> None:
        if code:
            text = ctypes.c_char_p()
            self._lib.cuGetErrorString(code, ctypes.byref(text))
            why = (text.value or b"unknown error").decode()
            raise MachineError(f"CUDA's driver refused {name}: {why} ({code})")

    def allocate(self, size: int) -> int:
        """Address of so many bytes on the device, apart from torch's own."""
        at = ctypes.c_uint64()
        self._do("cuMemAlloc_v2", ctypes.byref(at), ctypes.c_size_t(max(size, 1)))
        return at.value

    def free(self, at: int) -> None:
        """Give back what ``allocate`` gave."""
        self._do("cuMemFree_v2", ctypes.c_uint64(at))

    def share(self, at: int) -> str:
        """What another process opens an allocation with, as hexadecimal digits."""
        handle = _IpcHandle()
        self._do("cuIpcGetMemHandle", ctypes.byref(handle), ctypes.c_uint64(at))
        return bytes(handle).hex()

    def open(self, handle: str) -> int:
        """Address of another process's allocation in this one."""
        at = ctypes.c_uint64()
        given = _IpcHandle.from_buffer_copy(bytes.fromhex(handle))
        self._do("cuIpcOpenMemHandle_v2", ctypes.byref(at), given, _LAZY_PEER_ACCESS)
        return at.value

    def kernel(self, ptx: str, name: str) -> ctypes.c_void_p:
        """A kernel out of PTX text."""
        module, found = ctypes.c_void_p(), ctypes.c_void_p()
        self._do("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
        self._do("cuModuleGetFunction", ctypes.byref(found), module, ctypes.c_char_p(name.encode()))
        return found

    def launch(
        self,
        kernel: ctypes.c_void_p,
        blocks: int,
        threads: int,
        stream: int,
        values: tuple[Any, ...],
    ) -> None:
        """Queue a kernel; ``values`` are its parameters as ctypes' values."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        self._right(
            "cuLaunchKernel",
            self._launch(
                kernel, blocks, 1, 1, threads, 1, 1, 0, ctypes.c_void_p(stream), pointers, None
            ),
        )

    def event(self) -> ctypes.c_void_p:
        """A new event that keeps the time."""
        found = ctypes.c_void_p()
        self._do("cuEventCreate", ctypes.byref(found), 0)
        return found

    def record(self, event: ctypes.c_void_p, stream: int) -> None:
        """Queue an event."""
        self._right("cuEventRecord", self._record(event, ctypes.c_void_p(stream)))

    def wait(self, event: ctypes.c_void_p) -> None:
        """Wait until an event has happened."""
        self._right("cuEventSynchronize", self._wait_event(event))

    def elapsed_ns(self, start: ctypes.c_void_p, end: ctypes.c_void_p) -> float:
        """Nanoseconds between two events that have happened; the driver counts half microseconds."""
        found = ctypes.c_float()
        self._right("cuEventElapsedTime", self._elapsed(ctypes.byref(found), start, end))
        return found.value * 1e6

    def settle(self) -> None:
        """Wait for every stream of the device's context."""
        self._right("cuCtxSynchronize", self._wait())

    def reset_persisting_l2(self) -> None:
        """Make persisting lines of the L2 cache ordinary ones, where the driver knows them."""
        if self._reset is not None:
            with contextlib.suppress(MachineError):
                self._right("cuCtxResetPersistingL2Cache", self._reset())


class _Array:
    """Device memory in the form that ``torch.as_tensor`` takes without a copy."""

    def __init__(self, at: int, size: int) -> None:
        self.__cuda_array_interface__ = {
            "shape": (size,),
            "typestr": "|u1",
            "data": (at, False),
            "version": 3,
            "strides": None,
        }


def as_bytes(at: int, size: int) -> Any:
    """Device memory as a uint8 tensor, which does not own it."""
    import torch  # noqa: PLC0415

    return torch.as_tensor(_Array(at, size), device="cuda")

# SPDX-License-Identifier: Apache-2.0
"""What the benchmark engine needs of CUDA's driver and torch does not offer, through cuda.bindings.

Memory that two processes share (CUDA driver API, 6.13: memory management, ``cuIpc*``), a kernel
from PTX text that the driver compiles (6.12, 6.22), events, and the reset of the persisting part of
the L2 cache (6.9). Torch must have made the device's primary context before; it is made current
here. Patches of torch reach none of it.
"""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any

from kernforge.errors import MachineError

_HANDLE_BYTES = 64  # CUipcMemHandle; its field has no name in some versions of cuda.bindings


class Driver:
    """The driver of device 0, whose functions are bound before a candidate's code is loaded.

    Raises:
        MachineError: there is no driver, or it refuses.
        ModuleNotFoundError: cuda.bindings is not installed.
    """

    def __init__(self) -> None:
        from cuda.bindings import driver  # noqa: PLC0415 - optional, and a tenth of a second

        self._api, self._success = driver, driver.CUresult.CUDA_SUCCESS
        self._launch, self._synchronize = driver.cuLaunchKernel, driver.cuCtxSynchronize
        self._record, self._elapsed = driver.cuEventRecord, driver.cuEventElapsedTime
        self._wait_event = driver.cuEventSynchronize
        self._reset = driver.cuCtxResetPersistingL2Cache
        try:
            self._value(driver.cuInit(0))
        except RuntimeError as error:  # of cuda.bindings, which looks for the library now
            raise MachineError(f"CUDA's driver cannot be loaded: {error}") from error
        context = self._value(driver.cuDevicePrimaryCtxRetain(0))
        self._value(driver.cuCtxSetCurrent(context))

    def _value(self, returned: tuple[Any, ...]) -> Any:
        """What a function returns beside its status.

        Raises:
            MachineError: the status is an error.
        """
        code = returned[0]
        if code is not self._success:
            _, text = self._api.cuGetErrorString(code)
            why = (text or b"unknown error").decode()
            raise MachineError(f"CUDA's driver refused: {why} ({code.name})")
        return returned[-1]

    def allocate(self, size: int) -> int:
        """Address of so many bytes on the device, apart from torch's own."""
        return int(self._value(self._api.cuMemAlloc(max(size, 1))))

    def free(self, at: int) -> None:
        """Give back what ``allocate`` gave."""
        self._value(self._api.cuMemFree(at))

    def share(self, at: int) -> str:
        """What another process opens an allocation with, as hexadecimal digits."""
        handle = self._value(self._api.cuIpcGetMemHandle(at))
        return ctypes.string_at(handle.getPtr(), _HANDLE_BYTES).hex()

    def open(self, handle: str) -> int:
        """Address of another process's allocation in this one."""
        api, given = self._api, self._api.CUipcMemHandle()
        ctypes.memmove(given.getPtr(), bytes.fromhex(handle), _HANDLE_BYTES)
        lazy = api.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        return int(self._value(api.cuIpcOpenMemHandle(given, int(lazy))))

    def kernel(self, ptx: str, name: str) -> Any:
        """A kernel of PTX text, for ``launch``."""
        module = self._value(self._api.cuModuleLoadData(ptx.encode()))
        return self._value(self._api.cuModuleGetFunction(module, name.encode()))

    def launch(
        self, kernel: Any, blocks: int, threads: int, stream: int, values: tuple[Any, ...]
    ) -> None:
        """Queue a kernel; ``values`` are its parameters as ctypes' values."""
        pointers = (ctypes.c_void_p * len(values))(*(ctypes.addressof(each) for each in values))
        at = ctypes.addressof(pointers)
        self._value(self._launch(kernel, blocks, 1, 1, threads, 1, 1, 0, stream, at, 0))

    def event(self) -> Any:
        """A new event that keeps the time."""
        return self._value(self._api.cuEventCreate(0))

    def record(self, event: Any, stream: int) -> None:
        """Queue an event."""
        self._value(self._record(event, stream))

    def wait(self, event: Any) -> None:
        """Wait until an event has happened."""
        self._value(self._wait_event(event))

    def elapsed_ns(self, start: Any, end: Any) -> float:
        """Nanoseconds between two events that have happened; the driver counts half microseconds."""
        milliseconds: float = self._value(self._elapsed(start, end))
        return milliseconds * 1e6

    def settle(self) -> None:
        """Wait for every stream of the device's context."""
        self._value(self._synchronize())

    def reset_persisting_l2(self) -> None:
        """Make persisting lines of the L2 cache ordinary ones, where the device has them."""
        with contextlib.suppress(MachineError):
            self._value(self._reset())


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
    import torch

    return torch.as_tensor(_Array(at, size), device="cuda")

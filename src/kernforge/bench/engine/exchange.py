# SPDX-License-Identifier: Apache-2.0
"""Memory in which judge and worker hand each other tensors: of the host, or of the GPU.

On a GPU the judge allocates and the worker opens (CUDA's interprocess memory): what passes never
leaves the device, so that a workload of gigabytes costs milliseconds and not minutes.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine import cuda_driver
from kernforge.bench.engine.messages import BufferAddress
from kernforge.errors import StorageError, UsageError
from kernforge.system import machine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor as Torch

    from kernforge.bench.engine.workload import Layout


_MOST_AT_ONCE = 256 << 20  # Larger calls are few, and a copy of all their bytes is expensive.


class HostBuffer:
    """Bytes in the host's memory, as a file without a name.

    Nothing is left of it when its processes end, however they end, and a container's /dev/shm, often
    64 MB, does not limit its size.

    Raises:
        UsageError: the machine does not have so much memory.
    """

    def __init__(self, size: int) -> None:
        import torch

        self._file, self._reserved = os.memfd_create("kernforge-bench"), 0
        # The link opens for processes of this user as long as this one has the file open.
        path = f"/proc/{os.getpid()}/fd/{self._file}"
        self.address = BufferAddress(size=size, path=path)
        try:
            self.bytes = torch.from_file(path, shared=True, size=size, dtype=torch.uint8)
        except RuntimeError as error:
            os.close(self._file)
            raise UsageError(
                f"{size} bytes of memory cannot be shared: {error}",
                hint="the workload is larger than the memory for it",
            ) from error

    def reserve(self, size: int) -> None:
        """Make sure of the memory for the first bytes.

        A process that writes to a page for which there is no memory is killed by a signal.

        Raises:
            StorageError: so much memory is not free.
        """
        more = size - self._reserved
        if more <= 0:
            return
        # Such a file has no limit of its own that is below the machine's memory.
        if more > (free := machine.available_memory()):
            raise StorageError(
                f"the exchange needs {more / 1e6:.0f} MB more memory, and {free / 1e6:.0f} are free",
                hint="measure smaller workloads, or give the container more memory",
            )
        os.posix_fallocate(self._file, 0, size)
        self._reserved = size

    def close(self) -> None:
        """Close the file; a process that has it mapped keeps the memory."""
        os.close(self._file)


class DeviceBuffer:
    """Bytes on the GPU.

    Raises:
        MachineError: the GPU does not have so much memory, or its driver cannot share it.
    """

    def __init__(self, driver: cuda_driver.Driver, size: int) -> None:
        self._driver, self._at = driver, driver.allocate(size)
        self.address = BufferAddress(size=size, handle=driver.share(self._at))
        self.bytes = cuda_driver.as_bytes(self._at, size)

    def reserve(self, size: int) -> None:
        """All of it was allocated at the beginning."""

    def close(self) -> None:
        """Free the memory; no process may use it any more."""
        self._driver.free(self._at)


def open_buffer(address: BufferAddress) -> Torch:
    """The bytes of a buffer that another process made."""
    import torch

    size = address.size
    if address.path:
        return torch.from_file(address.path, shared=True, size=size, dtype=torch.uint8)
    return cuda_driver.as_bytes(cuda_driver.Driver().open(address.handle), size)


class Scratch:
    """The judge's memory for copies of exchanges, one of each kind at a time."""

    def __init__(self) -> None:
        self._kept: dict[str, Torch] = {}

    def copy(self, whole: Torch, kind: str) -> Torch:
        """A copy of an exchange's bytes, that holds until the next of its kind is made."""
        if whole.device.type != "cpu":  # Torch itself keeps a GPU's memory.
            return whole.clone()
        kept = self._kept.get(kind)
        # Memory that is new to a process costs as much as the copy.
        if kept is None or kept.numel() < whole.numel():
            kept = self._kept[kind] = whole.new_empty(whole.numel())
        return kept[: whole.numel()].copy_(whole)


class Exchange:
    """A buffer as the tensors of a workload's calls, seen by the judge.

    Args:
        buffer: at least as many bytes as the calls have.
        scratch: memory for copies, which several exchanges may share; None: its own.
    """

    def __init__(
        self, buffer: HostBuffer | DeviceBuffer, parts: Layout, scratch: Scratch | None = None
    ) -> None:
        self._buffer, self._shared, self._parts = buffer, buffer.bytes, parts
        self._scratch = scratch or Scratch()
        self._laid_out: Torch | None = None

    def _views(self, memory: Torch, call: int) -> tuple[list[Torch], list[Torch]]:
        import torch

        parts = (*self._parts.inputs, *self._parts.outputs)
        views = [
            memory[at : at + part.nbytes].view(getattr(torch, part.dtype)).view(part.shape)
            for at, part in zip(self._parts.offsets(call), parts, strict=True)
        ]
        count = len(self._parts.inputs)
        return views[:count], views[count:]

    def _sets(self, calls: int) -> Torch:
        """The bytes of so many calls."""
        return self._shared[: calls * self._parts.set_bytes]

    def put(self, given: Sequence[tuple[Any, ...]]) -> None:
        """Lay out the inputs of a turn's calls, and clear the results of an earlier one.

        Raises:
            StorageError: the memory for them is not free.
        """
        import torch

        self._buffer.reserve(len(given) * self._parts.set_bytes)
        whole = self._sets(len(given))
        whole.zero_()
        targets = [each for call in range(len(given)) for each in self._views(whole, call)[0]]
        if targets:
            arguments = [each for inputs in given for each in inputs]
            sources = [each for each in arguments if isinstance(each, torch.Tensor)]
            torch._foreach_copy_(signed(targets), signed(sources))
        at_once = whole.numel() <= _MOST_AT_ONCE
        self._laid_out = self._scratch.copy(whole, "laid out") if at_once else None

    def results(self, calls: int) -> list[tuple[Torch, ...]]:
        """The worker's results of each call, as they are now; the exchange is cleared.

        They are valid until the next results are asked for.
        """
        whole = self._sets(calls)
        if whole.numel() <= _MOST_AT_ONCE:
            taken = self._scratch.copy(whole, "taken")
            copies = [tuple(self._views(taken, call)[1]) for call in range(calls)]
        else:
            views = [self._views(whole, call)[1] for call in range(calls)]
            copies = [tuple(each.clone() for each in outputs) for outputs in views]
        whole.zero_()
        return copies

    def changed_inputs(
        self, given: Sequence[tuple[Any, ...]], allowed: tuple[int, ...]
    ) -> int | None:
        """The first call whose inputs are not what the worker was given; None: all are."""
        import torch

        # Eight bytes at a time: sets begin and end at multiples of them.
        words = self._sets(len(given)).view(torch.int64)
        if self._laid_out is not None and words.equal(self._laid_out.view(torch.int64)):
            return None
        for call, inputs in enumerate(given):
            if self._is_changed(call, inputs, allowed):
                return call
        return None

    def _is_changed(self, call: int, given: tuple[Any, ...], allowed: tuple[int, ...]) -> bool:
        import torch

        inputs = iter(self._views(self._shared, call)[0])
        for place, each in enumerate(given):
            if isinstance(each, torch.Tensor):
                now = next(inputs)
                if place not in allowed and not _bytes(now).equal(_bytes(each.contiguous())):
                    return True
        return False


def signed(tensors: list[Torch]) -> list[Torch]:
    """The same memory with signed integers for unsigned ones, which a GPU cannot copy in one launch."""
    import torch

    kinds = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return [each.view(kinds[each.dtype]) if each.dtype in kinds else each for each in tensors]


def _bytes(tensor: Torch) -> Torch:
    import torch

    return tensor.reshape(-1).view(torch.uint8)

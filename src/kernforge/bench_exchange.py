# SPDX-License-Identifier: Apache-2.0
"""Where judge and worker hand each other tensors: a shared file, or memory of the GPU.

On a GPU the judge allocates and the worker opens (CUDA's interprocess memory): what passes never
leaves the device, so that a workload of gigabytes costs milliseconds and not minutes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernforge import bench_driver
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor as Torch

    from kernforge.bench_plan import Layout


class FileBuffer:
    """Bytes in a file of the host's memory.

    Args:
        path: an empty file's place.
        size: bytes that it shall hold.

    Raises:
        UsageError: there is not so much memory.
    """

    def __init__(self, path: Path, size: int) -> None:
        import torch  # noqa: PLC0415

        self.told = {"path": str(path), "size": size}
        try:
            self.bytes = torch.from_file(str(path), shared=True, size=size, dtype=torch.uint8)
        except RuntimeError as error:
            raise UsageError(
                f"{size} bytes cannot be shared at {path}: {error}",
                hint="the workload is larger than the memory for it",
            ) from error

    def close(self) -> None:
        """The file goes with its directory."""


class DeviceBuffer:
    """Bytes on the GPU.

    Args:
        driver: the device's.
        size: bytes that it shall hold.

    Raises:
        MachineError: the GPU has not so much memory, or its driver shares none.
    """

    def __init__(self, driver: bench_driver.Driver, size: int) -> None:
        self._driver, self._at = driver, driver.allocate(size)
        self.told = {"handle": driver.share(self._at), "size": size}
        self.bytes = bench_driver.as_bytes(self._at, size)

    def close(self) -> None:
        """Give the memory back; nobody may use it any more."""
        self._driver.free(self._at)


def enter(told: dict[str, Any]) -> Torch:
    """The worker's side of a buffer."""
    import torch  # noqa: PLC0415

    size = told["size"]
    if "path" in told:
        return torch.from_file(told["path"], shared=True, size=size, dtype=torch.uint8)
    found: Torch = bench_driver.as_bytes(bench_driver.Driver().open(told["handle"]), size)
    return found


class Exchange:
    """A buffer as the tensors of a workload's calls, seen by the judge.

    Args:
        shared: the buffer's bytes, at least as many as the calls have.
        parts: what one call has.
    """

    def __init__(self, shared: Torch, parts: Layout) -> None:
        self._shared, self._parts = shared, parts

    def _views(self, call: int) -> tuple[list[Torch], list[Torch]]:
        import torch  # noqa: PLC0415

        parts = (*self._parts.inputs, *self._parts.outputs)
        found = [
            self._shared[at : at + part.nbytes].view(getattr(torch, part.dtype)).view(part.shape)
            for at, part in zip(self._parts.offsets(call), parts, strict=True)
        ]
        count = len(self._parts.inputs)
        return found[:count], found[count:]

    def put(self, call: int, given: tuple[Any, ...]) -> None:
        """Lay a call's inputs out, and forget results of an earlier one."""
        inputs, outputs = self._views(call)
        for target, source in zip(inputs, _plain(given), strict=True):
            target.copy_(source)
        for each in outputs:
            each.zero_()

    def results(self, call: int) -> tuple[Torch, ...]:
        """A copy of what the worker gave, which leaves the exchange."""
        outputs = self._views(call)[1]
        found = tuple(each.clone() for each in outputs)
        for each in outputs:
            each.zero_()
        return found

    def changed_inputs(self, call: int, given: tuple[Any, ...], allowed: tuple[int, ...]) -> bool:
        """Whether the worker's inputs are no longer what it was given."""
        inputs = iter(self._views(call)[0])
        import torch  # noqa: PLC0415

        for place, each in enumerate(given):
            if isinstance(each, torch.Tensor):
                now = next(inputs)
                same = _bytes(now).equal(_bytes(each.contiguous()))
                if not same and place not in allowed:
                    return True
        return False


def _plain(given: tuple[Any, ...]) -> list[Torch]:
    import torch  # noqa: PLC0415

    return [each for each in given if isinstance(each, torch.Tensor)]


def _bytes(tensor: Torch) -> Torch:
    import torch  # noqa: PLC0415

    return tensor.reshape(-1).view(torch.uint8)

# SPDX-License-Identifier: Apache-2.0
"""The judge's own numbers: inputs that nobody can foresee, and whether results are right.

A floating-point element is right when it is within the tolerance times the sum of the wanted value
and the root mean square of all wanted values, and NaN and infinities are where they should be.
Integers must be equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kernforge.bench_plan import TOLERANCES, Layout, Tensor, Workload
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Generator
    from torch import Tensor as Torch

_BYTE = 256
_EIGHT_BIT_FLOAT = 0.1


def draw(workload: Workload, random: Generator) -> tuple[Any, ...]:
    """Arguments of one call, on the CPU."""
    return tuple(
        _tensor(each, random) if isinstance(each, Tensor) else each for each in workload.inputs
    )


def _tensor(wanted: Tensor, random: Generator) -> Torch:
    import torch  # noqa: PLC0415

    dtype = getattr(torch, wanted.dtype)
    if dtype.is_floating_point and wanted.low is None and wanted.high is None:
        return torch.randn(wanted.shape, generator=random).to(dtype)
    low = 0 if wanted.low is None else wanted.low
    if dtype.is_floating_point:
        high = 1.0 if wanted.high is None else wanted.high
        return (torch.rand(wanted.shape, generator=random) * (high - low) + low).to(dtype)
    if dtype.is_complex:
        return torch.randn(wanted.shape, generator=random, dtype=dtype)
    most = 2 if dtype == torch.bool else 128 if dtype == torch.int8 else _BYTE
    high = int(wanted.high) if wanted.high is not None else most
    small = dtype if dtype in (torch.uint8, torch.int8) else torch.int64
    return torch.randint(int(low), high, wanted.shape, generator=random, dtype=small).to(dtype)


def expected(workload: Workload, given: tuple[Any, ...]) -> tuple[Torch, ...]:
    """What the reference says; it may change its own copy of the inputs."""
    import torch  # noqa: PLC0415

    copies = (each.clone() if isinstance(each, torch.Tensor) else each for each in given)
    found = workload.reference(*copies)
    return tuple(found) if isinstance(found, tuple | list) else (found,)


def layout(workload: Workload, wanted: tuple[Torch, ...]) -> Layout:
    """Where a workload's tensors lie in the exchange."""
    dtypes = workload.result_dtypes(len(wanted))
    return Layout(
        inputs=workload.tensors,
        outputs=tuple(
            Tensor(shape=tuple(each.shape), dtype=dtype)
            for each, dtype in zip(wanted, dtypes, strict=True)
        ),
    )


class Exchange:
    """The file that judge and worker share, as tensors.

    Args:
        path: an empty file's place.
        parts: what one call has.
        calls: how many calls it holds.
    """

    def __init__(self, path: Path, parts: Layout, calls: int) -> None:
        import torch  # noqa: PLC0415

        self.size = parts.set_bytes * calls
        self._parts = parts
        try:
            self._file = torch.from_file(str(path), shared=True, size=self.size, dtype=torch.uint8)
        except RuntimeError as error:
            raise UsageError(
                f"{self.size} bytes cannot be shared at {path}: {error}",
                hint="the workload is larger than the memory for it",
            ) from error

    def _views(self, call: int) -> tuple[list[Torch], list[Torch]]:
        import torch  # noqa: PLC0415

        parts = (*self._parts.inputs, *self._parts.outputs)
        found = [
            self._file[at : at + part.nbytes].view(getattr(torch, part.dtype)).view(part.shape)
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


def difference(workload: Workload, got: tuple[Torch, ...], wanted: tuple[Torch, ...]) -> str | None:
    """The first wrong element with what was wanted there; None when all are right."""
    wrong = _difference(workload, got, wanted)
    return None if wrong and workload.accepts and workload.accepts(got, wanted) else wrong


def _difference(
    workload: Workload, got: tuple[Torch, ...], wanted: tuple[Torch, ...]
) -> str | None:
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        at = _first_wrong(workload, mine, theirs)
        if at is not None:
            which = f"result {number}" if len(wanted) > 1 else "the result"
            return f"{which} is wrong at {list(at)}: {mine[at].item()}, wanted {theirs[at].item()}"
    return None


def _first_wrong(workload: Workload, got: Torch, wanted: Torch) -> tuple[int, ...] | None:
    import torch  # noqa: PLC0415

    if not got.dtype.is_floating_point and not got.dtype.is_complex:
        wrong = got.to(torch.int64) != wanted.to(torch.int64)
    else:
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        mine, theirs = got.to(wide), wanted.to(wide)
        tolerance = workload.tolerance
        if tolerance is None:
            tolerance = TOLERANCES.get(str(got.dtype).removeprefix("torch."), _EIGHT_BIT_FLOAT)
        finite = torch.isfinite(theirs)
        scale = theirs[finite].abs().square().mean().sqrt() if finite.any() else 0.0
        wrong = ~((mine - theirs).abs() <= tolerance * (theirs.abs() + scale))
        same = (mine == theirs) | (torch.isnan(mine) & torch.isnan(theirs))
        wrong = torch.where(finite, wrong, ~same)
    if not wrong.any():
        return None
    flat = int(wrong.reshape(-1).to(torch.uint8).argmax())
    return tuple(int(i) for i in torch.unravel_index(torch.tensor(flat), wrong.shape))

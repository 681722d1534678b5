# SPDX-License-Identifier: Apache-2.0
"""Fresh inputs of a workload, and whether results are right; all on the measured device.

A floating-point element is right when it is within the tolerance times the sum of the expected
value and the root mean square of all expected values, and NaN and infinities are where they are
expected. Integers must be equal.
"""

from __future__ import annotations

import math
import random
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from kernforge.bench.workload import Tensor, Workload
from kernforge.errors import UsageError

if TYPE_CHECKING:
    from torch import Tensor as Torch

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of the reference's root mean square plus the expected value."""
_EIGHT_BIT_FLOAT = 0.1
_BYTE = 256
_PART = 1 << 24


class Inputs:
    """The inputs of calls, drawn anew for each round into the same memory.

    Values change and addresses stay, so that a result which was kept by its inputs' addresses is
    wrong.

    Args:
        device: ``cpu`` or ``cuda``.

    Attributes:
        bytes: what must be moved at least.
        flops: floating-point operations that must be done at least.
        call_bytes: memory of the tensors of a call.

    Raises:
        UsageError: the inputs cannot be made, or the reference cannot be run.
    """

    verifies = True

    def __init__(self, workload: Workload, device: str) -> None:
        self.workload, self._device = workload, device
        self.name, self.family, self.size = workload.name, workload.family, workload.size
        self._buffers: list[tuple[Any, ...]] = []
        self._number = 0
        self._expected: tuple[tuple[int, int], tuple[Any, ...], tuple[Torch, ...]] | None = None
        given = self._draw(0)
        results = expected(workload, given)
        self._dtypes = workload.result_dtypes(len(results))
        read = sum(each.nbytes for each in workload.tensors)
        written = sum(
            Tensor(shape=tuple(each.shape), dtype=dtype).nbytes
            for each, dtype in zip(results, self._dtypes, strict=True)
        )
        self.call_bytes = read + written
        self.bytes = workload.bytes if workload.bytes is not None else self.call_bytes
        self.flops = _flops(workload, given)

    def renew(self, number: int, count: int) -> None:
        """Draw the inputs of the first ``count`` calls of a round."""
        self._number = number
        for place in range(count):
            given = self._draw(place)
            if place == len(self._buffers):
                self._buffers.append(given)
                continue
            for mine, new in zip(self._buffers[place], given, strict=True):
                if _is_tensor(mine):
                    mine.copy_(new)

    def _draw(self, place: int) -> tuple[Any, ...]:
        # A round has the same inputs for all candidates.
        source = random.Random(f"{self._number}/{place}")  # noqa: S311 - no secret
        return draw(self.workload, self._device, source.getrandbits(60))

    def arguments(self, place: int) -> tuple[Any, ...]:
        """Arguments of a call."""
        return self._buffers[place]

    def touch(self, place: int) -> None:
        """Read and write the inputs of a call, so that they lie in the caches."""
        for each in self._buffers[place]:
            if _is_tensor(each):
                each.copy_(each.clone())

    def wrong(self, place: int, returned: Any) -> str:
        """What is wrong with a call's result, or its inputs after it; empty if nothing is."""
        if self._expected is None or self._expected[0] != (self._number, place):
            given = self._draw(place)
            right = expected(self.workload, given)
            self._expected = (self._number, place), given, right
        _, given, right = self._expected
        results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
        if mistake := _misfit(results, right, self._dtypes, self._device):
            return mistake
        for at, (mine, before) in enumerate(zip(self._buffers[place], given, strict=True)):
            if _is_tensor(mine) and at not in self.workload.inplace and not _same(mine, before):
                return f"input {at} was changed, which inplace does not allow"
        return difference(self.workload, results, right)


def _is_tensor(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor)


def _same(one: Torch, other: Torch) -> bool:
    import torch

    one, other = (each.contiguous().reshape(-1).view(torch.uint8) for each in (one, other))
    return bool(torch.equal(one, other))


def _misfit(
    results: tuple[Any, ...], right: tuple[Torch, ...], dtypes: tuple[str, ...], device: str
) -> str:
    """Whether results are other tensors than are expected."""
    if len(results) != len(right):
        return f"{len(results)} results, expected {len(right)}"
    for got, wanted, dtype in zip(results, right, dtypes, strict=True):
        if not _is_tensor(got):
            return f"the result is a {type(got).__name__}, not a tensor"
        seen = (tuple(got.shape), str(got.dtype).removeprefix("torch."), got.device.type)
        if seen != (tuple(wanted.shape), dtype, device):
            return f"the result is {seen}, expected {(tuple(wanted.shape), dtype, device)}"
    return ""


def draw(workload: Workload, device: str, seed: int) -> tuple[Any, ...]:
    """Arguments of one call.

    Raises:
        UsageError: they do not fit into memory, or a range of values is empty.
    """
    import torch

    generator = torch.Generator(device=device).manual_seed(seed)
    try:
        return tuple(
            _tensor(each, generator) if isinstance(each, Tensor) else each
            for each in workload.inputs
        )
    except RuntimeError as error:  # torch's words, with the stack of its C++ below the first line
        raise UsageError(
            f"workload {workload.name}: its inputs cannot be made: "
            f"{str(error).partition(chr(10))[0]}",
            hint="look at the shapes and at low and high; `--workload NAME` measures others",
        ) from error


def _tensor(wanted: Tensor, generator: Any) -> Torch:
    import torch

    dtype = getattr(torch, wanted.dtype)
    how: dict[str, Any] = {"generator": generator, "device": generator.device}
    if dtype.is_complex:
        return torch.randn(wanted.shape, dtype=dtype, **how)
    if dtype.is_floating_point and wanted.low is None and wanted.high is None:
        return torch.randn(wanted.shape, **how).to(dtype)
    low = 0 if wanted.low is None else wanted.low
    if dtype.is_floating_point:
        high = 1.0 if wanted.high is None else wanted.high
        return (torch.rand(wanted.shape, **how) * (high - low) + low).to(dtype)
    most = 2 if dtype == torch.bool else 128 if dtype == torch.int8 else _BYTE
    high = int(wanted.high) if wanted.high is not None else most
    small = dtype if dtype in (torch.uint8, torch.int8) else torch.int64
    return torch.randint(int(low), high, wanted.shape, dtype=small, **how).to(dtype)


def expected(workload: Workload, given: tuple[Any, ...]) -> tuple[Torch, ...]:
    """The results of the reference, which may change its own copy of the inputs.

    Raises:
        UsageError: the reference raises, or returns something else than tensors.
    """
    copies = (each.clone() if _is_tensor(each) else each for each in given)
    try:
        returned = workload.reference(*copies)
    except Exception as error:
        code = getattr(workload.reference, "__code__", None)
        frames = extract_tb(error.__traceback__)
        mine = [each for each in frames if code and each.filename == code.co_filename]
        at = f" ({mine[-1].filename}, line {mine[-1].lineno})" if mine else ""
        raise UsageError(
            f"the reference of workload {workload.name} raises {type(error).__name__}: {error}{at}",
            hint="it is called with the workload's inputs in their order, tensors and plain values",
        ) from error
    results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    if not all(map(_is_tensor, results)):
        raise UsageError(
            f"the reference of workload {workload.name} returns {type(returned).__name__}",
            hint="it returns the right result: a tensor, or a tuple of tensors",
        )
    return results


def _flops(workload: Workload, given: tuple[Any, ...]) -> int:
    """Floating-point operations: what the workload declares, or torch counts in its reference.

    Torch counts products, convolutions and attention, and nothing element by element.
    """
    from torch.utils.flop_counter import FlopCounterMode

    if workload.flops is not None:
        return workload.flops
    with FlopCounterMode(display=False) as counter:
        expected(workload, given)
    return int(counter.get_total_flops())


def difference(workload: Workload, got: tuple[Torch, ...], right: tuple[Torch, ...]) -> str:
    """The first wrong element with the expected one; empty when all are right."""
    for number, (mine, theirs) in enumerate(zip(got, right, strict=True)):
        tolerance = workload.tolerance
        if tolerance is None:
            dtype = str(mine.dtype).removeprefix("torch.")
            tolerance = TOLERANCES.get(dtype, _EIGHT_BIT_FLOAT)
        at = first_wrong(mine, theirs, tolerance)
        if at is not None and not (workload.accepts and workload.accepts(got, right)):
            which = f"result {number}" if len(right) > 1 else "the result"
            return (
                f"{which} is wrong at {list(at)}: {mine[at].item()}, expected {theirs[at].item()}"
            )
    return ""


def first_wrong(got: Torch, right: Torch, tolerance: float) -> tuple[int, ...] | None:
    """Position of the first wrong element; a part at a time, so that float64 copies stay small."""
    import torch

    mine, theirs = got.reshape(-1), right.reshape(-1)
    wide, scale = torch.int64, 0.0
    if got.dtype.is_floating_point or got.dtype.is_complex:
        wide = torch.complex128 if got.dtype.is_complex else torch.float64
        scale = _root_mean_square(theirs)
    else:
        tolerance = 0.0
    for first in range(0, mine.numel(), _PART):
        pair = (each[first : first + _PART].to(wide) for each in (mine, theirs))
        near = torch.isclose(*pair, rtol=tolerance, atol=tolerance * scale, equal_nan=True)
        if not near.all():
            flat = torch.tensor(first + int(near.to(torch.uint8).argmin()))
            return tuple(int(i) for i in torch.unravel_index(flat, got.shape))
    return None


def _root_mean_square(right: Torch) -> float:
    """Of the finite elements; 0 when there are none."""
    total, count = 0.0, 0
    for part in right.split(_PART):
        finite = part[part.isfinite()].abs().double()
        total += float(finite.square().sum())
        count += finite.numel()
    return math.sqrt(total / count) if count else 0.0

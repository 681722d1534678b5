# SPDX-License-Identifier: Apache-2.0
"""Random inputs, expected results, and whether a result is right; all on the measured device.

A floating-point element is right when it is within the tolerance times the sum of the expected
value and the root mean square of all expected values, and NaN and infinities are where they are
expected. Integers must be equal.
"""

from __future__ import annotations

import math
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine.workload import TOLERANCES, Layout, Tensor, Workload
from kernforge.errors import KernforgeError, UsageError

if TYPE_CHECKING:
    from torch import Generator
    from torch import Tensor as Torch

_BYTE = 256
_EIGHT_BIT_FLOAT = 0.1
_PART = 1 << 24


def draw(workload: Workload, random: Generator) -> tuple[Any, ...]:
    """Arguments of one call, on the generator's device.

    Raises:
        UsageError: they do not fit into memory, or a range of values is empty.
    """
    try:
        return tuple(
            _tensor(each, random) if isinstance(each, Tensor) else each for each in workload.inputs
        )
    except RuntimeError as error:  # torch's words, with the stack of its C++ below the first line
        raise UsageError(
            f"workload {workload.name}: its inputs cannot be made: {str(error).partition(chr(10))[0]}",
            hint="look at the shapes and at low and high; `--workload NAME` measures others",
        ) from error


def _tensor(wanted: Tensor, random: Generator) -> Torch:
    import torch

    dtype = getattr(torch, wanted.dtype)
    how: dict[str, Any] = {"generator": random, "device": random.device}
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
    import torch

    copies = (each.clone() if isinstance(each, torch.Tensor) else each for each in given)
    try:
        returned = workload.reference(*copies)
    except KernforgeError:
        raise
    except Exception as error:
        code = getattr(workload.reference, "__code__", None)
        frames = [
            f for f in extract_tb(error.__traceback__) if code and f.filename == code.co_filename
        ]
        at = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
        raise UsageError(
            f"the reference of workload {workload.name} raises {type(error).__name__}: {error}{at}",
            hint="it is called with the workload's inputs in their order, tensors and plain values",
        ) from error
    results = tuple(returned) if isinstance(returned, tuple | list) else (returned,)
    for each in results:
        if not isinstance(each, torch.Tensor):
            raise UsageError(
                f"the reference of workload {workload.name} returns {type(each).__name__}",
                hint="it returns the right result: a tensor, or a tuple of tensors",
            )
    return results


def counted_flops(workload: Workload, given: tuple[Any, ...]) -> int:
    """Floating-point operations: what the workload declares, or torch counts in its reference.

    Torch counts products, convolutions and attention, and nothing element by element.
    """
    from torch.utils.flop_counter import FlopCounterMode

    if workload.flops is not None:
        return workload.flops
    with FlopCounterMode(display=False) as counter:
        expected(workload, given)
    return int(counter.get_total_flops())


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


def difference(workload: Workload, got: tuple[Torch, ...], wanted: tuple[Torch, ...]) -> str | None:
    """The first wrong element with the expected one; None when all are right."""
    wrong = _difference(workload, got, wanted)
    return None if wrong and workload.accepts and workload.accepts(got, wanted) else wrong


def _difference(
    workload: Workload, got: tuple[Torch, ...], wanted: tuple[Torch, ...]
) -> str | None:
    for number, (mine, theirs) in enumerate(zip(got, wanted, strict=True)):
        at = _first_wrong(workload, mine, theirs)
        if at is not None:
            which = f"result {number}" if len(wanted) > 1 else "the result"
            return (
                f"{which} is wrong at {list(at)}: {mine[at].item()}, expected {theirs[at].item()}"
            )
    return None


def _first_wrong(workload: Workload, got: Torch, wanted: Torch) -> tuple[int, ...] | None:
    """Position of the first wrong element; a part at a time, so that float64 copies stay small."""
    import torch

    mine, theirs = got.reshape(-1), wanted.reshape(-1)
    exact = not (got.dtype.is_floating_point or got.dtype.is_complex)
    tolerance, scale = (0.0, 0.0) if exact else (_tolerance(workload, got), _scale(theirs))
    for first in range(0, mine.numel(), _PART):
        pair = mine[first : first + _PART], theirs[first : first + _PART]
        if exact:
            wrong = pair[0].to(torch.int64) != pair[1].to(torch.int64)
        else:
            wrong = _far(*pair, tolerance, scale)
        if wrong.any():
            flat = torch.tensor(first + int(wrong.to(torch.uint8).argmax()))
            return tuple(int(i) for i in torch.unravel_index(flat, got.shape))
    return None


def _tolerance(workload: Workload, got: Torch) -> float:
    if workload.tolerance is not None:
        return workload.tolerance
    return TOLERANCES.get(str(got.dtype).removeprefix("torch."), _EIGHT_BIT_FLOAT)


def _scale(wanted: Torch) -> float:
    """Root mean square of the finite elements; 0 when there are none."""
    total, count = 0.0, 0
    for part in wanted.split(_PART):
        finite = _wide(part[part.isfinite()]).abs()
        total += float(finite.square().sum())
        count += finite.numel()
    return math.sqrt(total / count) if count else 0.0


def _wide(part: Torch) -> Torch:
    import torch

    return part.to(torch.complex128 if part.dtype.is_complex else torch.float64)


def _far(got: Torch, wanted: Torch, tolerance: float, scale: float) -> Torch:
    """Where an element is not near enough."""
    import torch

    mine, theirs = _wide(got), _wide(wanted)
    far = ~((mine - theirs).abs() <= tolerance * (theirs.abs() + scale))
    same = (mine == theirs) | (torch.isnan(mine) & torch.isnan(theirs))
    return torch.where(theirs.isfinite(), far, ~same)

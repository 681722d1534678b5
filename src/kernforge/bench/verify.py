# SPDX-License-Identifier: Apache-2.0
"""Fresh inputs of a workload, and the check of results, on the measured device."""

from __future__ import annotations

import contextlib
import random
from traceback import extract_tb
from typing import TYPE_CHECKING, Any

from kernforge.bench.workload import Subject, Tensor, Workload
from kernforge.compare.results import bitwise_difference, difference_by_share
from kernforge.compare.tensors import as_tuple, draw, is_tensor
from kernforge.errors import KernforgeError, UsageError
from kernforge.system.tables import page

if TYPE_CHECKING:
    from torch import Tensor as Torch

TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
"""Of the reference's root mean square plus the expected value."""
_EIGHT_BIT_FLOAT = 0.1


class Inputs(Subject):
    """The inputs of calls, drawn anew for each round into the same memory.

    Values change and addresses stay, so that a result that was cached by its inputs' addresses is
    wrong.
    """

    def __init__(self, workload: Workload, device: str) -> None:
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        super().__init__()
        self.workload, self._device = workload, device
        self.name, self.family, self.size = workload.name, workload.family or "all", workload.size
        self.dtype = workload.tensors[0].dtype
        self._number = 0
        self._expected: tuple[tuple[int, int], tuple[Any, ...], tuple[Torch, ...]] | None = None
        # Torch counts products, convolutions and attention, and nothing element by element.
        counter = FlopCounterMode(display=False)
        with counter if workload.flops is None else contextlib.nullcontext():
            results = _expected(workload, self._draw(0))
        self.flops = counter.get_total_flops() if workload.flops is None else workload.flops
        self._dtypes = workload.outputs or (self.dtype,) * len(results)
        if len(self._dtypes) != len(results):
            raise UsageError(
                f"workload {self.name} names {len(self._dtypes)} dtypes for {len(results)} results",
                hint="outputs must have as many as the reference returns",
            )
        written = zip(results, self._dtypes, strict=True)
        self.call_bytes = sum(each.nbytes for each in workload.tensors)
        self.call_bytes += sum(r.numel() * getattr(torch, name).itemsize for r, name in written)
        self.bytes = workload.bytes if workload.bytes is not None else self.call_bytes

    def renew(self, number: int, count: int) -> None:
        """Draw the inputs of the first ``count`` calls of a round."""
        self._number = number
        for place in range(count):
            given = self._draw(place)
            if place == len(self.calls):
                self.calls.append(given)
                continue
            for mine, new in zip(self.calls[place], given, strict=True):
                if is_tensor(mine):
                    mine.copy_(new)

    def _draw(self, place: int) -> tuple[Any, ...]:
        """The arguments of a call, which are the same in a round for all candidates."""
        import torch

        seed = random.Random(f"{self._number}/{place}").getrandbits(60)  # noqa: S311 - no secret
        generator = torch.Generator(device=self._device).manual_seed(seed)
        return tuple(
            draw(each.shape, getattr(torch, each.dtype), generator, each.low, each.high)
            if isinstance(each, Tensor)
            else each
            for each in self.workload.inputs
        )

    def verify(self, place: int, returned: Any) -> str:
        """The error of a call's result, or of its inputs after it; "" without one."""
        if self._expected is None or self._expected[0] != (self._number, place):
            given = self._draw(place)
            self._expected = (self._number, place), given, _expected(self.workload, given)
        _, given, right = self._expected
        results = as_tuple(returned)
        got = [
            (tuple(each.shape), str(each.dtype).removeprefix("torch."), each.device.type)
            if is_tensor(each)
            else type(each).__name__
            for each in results
        ]
        wanted = [
            (tuple(each.shape), dtype, self._device)
            for each, dtype in zip(right, self._dtypes, strict=True)
        ]
        if got != wanted:
            return f"the results are {got}, expected {wanted}"
        for at, (mine, before) in enumerate(zip(self.calls[place], given, strict=True)):
            is_const = is_tensor(mine) and at not in self.workload.inplace
            if is_const and bitwise_difference(mine, before, ""):
                return f"input {at} was changed, which inplace does not allow"
        accepts, tolerance = self.workload.accepts, self.workload.tolerance
        for number, (mine, theirs) in enumerate(zip(results, right, strict=True)):
            usual = TOLERANCES.get(self._dtypes[number], _EIGHT_BIT_FLOAT)
            wrong = difference_by_share(mine, theirs, usual if tolerance is None else tolerance)
            if wrong and not (accepts and accepts(results, right)):
                what = f"result {number}" if len(right) > 1 else "the result"
                return wrong.text(f"{what} is wrong at ", mine.shape)
        return ""


def _expected(workload: Workload, given: tuple[Any, ...]) -> tuple[Torch, ...]:
    """The results of the reference, which may change its own copy of the inputs."""
    copies = (each.clone() if is_tensor(each) else each for each in given)
    try:
        returned = workload.reference(*copies)
    except Exception as error:
        code = getattr(workload.reference, "__code__", None)
        what = f"the reference of workload {workload.name}"
        raise user_error(error, what, code.co_filename if code else "") from error
    results = as_tuple(returned)
    if not all(map(is_tensor, results)):
        raise UsageError(
            f"the reference of workload {workload.name} returns {type(returned).__name__}",
            hint="it returns the right result: a tensor, or a tuple of tensors",
        )
    return results


def user_error(error: Exception, what: str, file: str) -> UsageError:
    """An error of the author's code, with the line in a file of theirs where it was raised."""
    lines = [f.lineno for f in extract_tb(error.__traceback__) if f.filename == file]
    at = f" ({file}, line {lines[-1]})" if lines else ""
    if isinstance(error, KernforgeError):
        return UsageError(f"{what}{at}: {error.message}", hint=error.hint)
    text = f"{what} cannot be run: {type(error).__name__}: {error}{at}"
    return UsageError(text, hint=f"see {page('how-to/author/measure-a-kernel')}")

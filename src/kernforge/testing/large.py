# SPDX-License-Identifier: Apache-2.0
"""A call of more than 2^31 elements on a GPU: whether there is memory for it, and its comparison.

If a part of the results depends only on a part of the inputs, the reference is computed part by
part on the GPU. Only the first wrong element is copied to the host.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from kernforge.testing import case as cases
from kernforge.testing import compare
from kernforge.testing.case import OpDeclaration, Trial

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
PART = 2**26
"""Number of elements of a part."""
_FLOAT64_COPIES = 16  # of a part, while it is compared
_SHARE = 0.95  # of the free memory


def skip_without_memory(trial: Trial) -> None:
    """Skip a test, with the needed memory as a reason, if the large case does not fit.

    The memory of the large case is computed from this trial's, which fits, in proportion.
    """
    import torch

    declared = trial.declared
    case = trial.case(keep=False)
    results = case.results(trial.op(*case.args))
    tensors = [a for a in (*case.args, *results) if cases.is_tensor(a)]
    count = math.prod(declared.large or ())
    times = count / max(1, math.prod(trial.shape))
    compared = min(PART, count) if _by_parts(declared) else count
    need = int(times * sum(tensor.nbytes for tensor in tensors)) + compared * 8 * _FLOAT64_COPIES
    torch.cuda.empty_cache()
    free = int(torch.cuda.mem_get_info()[0] * _SHARE)
    if free < need:
        pytest.skip(f"needs {need / 1e9:.0f} GB of the GPU, {free / 1e9:.0f} GB can be used")


def assert_large(trial: Trial) -> None:
    """Compare the results of a call with the shape ``large`` with the reference's."""
    declared, shape = trial.declared, trial.declared.large or ()
    case = replace(trial, shape=shape).case(keep=False)
    results = case.results(trial.op(*case.args))
    if not _by_parts(declared):
        case.compare(results)
        return
    length = math.prod(shape) if declared.elementwise else shape[0]
    differences: dict[int, compare.Difference] = {}
    step = max(1, PART * length // math.prod(shape))
    for start in range(0, length, step):
        part = slice(start, min(start + step, length))
        before = tuple(_cut(a, part, declared, length) for a in case.before)
        pairs = declared.expected(before)
        for number, (complete, (exact, same)) in enumerate(zip(results, pairs, strict=True)):
            result = _cut(complete, part, declared, length)
            compare.assert_shape(result.shape, exact.shape, what=f"part of result {number}")
            if difference := compare.difference(result, exact, same, factor=declared.factor):
                at = part.start * (complete.numel() // length)
                differences[number] = difference.after(differences.get(number), at=at)
    for number, difference in differences.items():
        raise AssertionError(difference.text(f"result {number}", results[number].shape))


def _by_parts(declared: OpDeclaration) -> bool:
    return declared.elementwise or declared.rowwise


def _cut(value: Any, part: slice, declared: OpDeclaration, length: int) -> Any:
    """The part of a tensor that has the full length; other values are not changed."""
    if not cases.is_tensor(value):
        return value
    if declared.elementwise:
        return value.reshape(-1)[part] if value.numel() == length else value
    return value[part] if value.shape[:1] == (length,) else value

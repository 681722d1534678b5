# SPDX-License-Identifier: Apache-2.0
"""A call of more than 2^31 elements: whether there is memory for it, and how it is judged.

Where results depend on a part of the inputs alone, the reference is made part by part, where the
tensors are: on a GPU all of it is judged, on a CPU three places, since a reference in float64 takes
minutes there. Nothing but the first wrong element is copied to the host.
"""

from __future__ import annotations

import math
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernforge.system import files
from kernforge.system.paths import home
from kernforge.testing import case as cases
from kernforge.testing import compare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from kernforge.testing.case import Declared
    from kernforge.testing.inputs import Draw

PART = {"cpu": 2**16, "cuda": 2**26}
"""Elements whose reference is made at once."""
_EDGE = 2**31
_FLOAT64_COPIES = 16  # of a part, while it is compared
_SHARE = {"cpu": 0.25, "cuda": 0.95}  # of the free memory: a CPU's is shared with other programs


@contextmanager
def alone(device: str) -> Iterator[None]:
    """One large call at a time on a machine: beside another one, each would lack the memory.

    Tests that run in several processes wait for each other here. What torch keeps is given back.
    """
    kind = device.partition(":")[0]
    with files.locked(home() / "locks" / f"large-{kind}"):
        try:
            yield
        finally:
            if kind == "cuda":
                _give_back()


def need_memory(
    declared: Declared, op: Callable[..., Any], draw: Draw, small: tuple[int, ...]
) -> None:
    """Skip, visibly, where the largest case does not fit; the message says how much it needs.

    Args:
        declared: the operator, with ``large``.
        op: what is called.
        draw: how its arguments are made.
        small: a shape that fits: what it takes, the large one takes as many times as it is larger.
    """
    case = cases.Case.make(declared, draw, small, keep=False)
    results = case.results(op(*case.args))
    tensors = [a for a in (*case.args, *results) if cases.is_tensor(a)]
    count = math.prod(declared.large or ())
    times = count / max(1, math.prod(small))
    kind = draw.device.partition(":")[0]
    judged = min(PART[kind], count) if _by_parts(declared) else count
    need = int(times * sum(map(_bytes, tensors))) + judged * 8 * _FLOAT64_COPIES
    free = int(_free(kind) * _SHARE[kind])
    if free < need:
        pytest.skip(f"needs {need / 1e9:.0f} GB on {kind}, {free / 1e9:.0f} GB may be taken")


def assert_large(declared: Declared, op: Callable[..., Any], draw: Draw) -> None:
    """Hold the result of a call of ``large`` elements against the reference.

    Raises:
        AssertionError: a result differs; it names the first element that does.
    """
    shape = declared.large or ()
    case = cases.Case.make(declared, draw, shape, keep=False)
    got = case.results(op(*case.args))
    if not _by_parts(declared):
        cases.assert_results(declared, case.before, got)
        return
    length = math.prod(shape) if declared.elementwise else shape[0]
    found: dict[int, compare.Difference] = {}
    for part in _parts(length, math.prod(shape) // length, draw.device.partition(":")[0]):
        before = tuple(_cut(a, part, declared, length) for a in case.before)
        pairs = cases.wanted(declared, before)
        for number, (whole, (exact, same)) in enumerate(zip(got, pairs, strict=True)):
            mine = _cut(whole, part, declared, length)
            compare.assert_shape(mine.shape, exact.shape, what=f"part of result {number}")
            if one := compare.difference(mine, exact, same, factor=declared.factor):
                at = part.start * (whole.numel() // length)
                found[number] = one.after(found.get(number), at=at)
    for number, one in found.items():
        raise AssertionError(one.text(f"result {number}", got[number].shape))


def _by_parts(declared: Declared) -> bool:
    return declared.elementwise or declared.rowwise


def _parts(length: int, width: int, device: str) -> Iterator[slice]:
    """What is judged, as indices of ``width`` elements each."""
    step = max(1, PART[device] // width)
    if device == "cuda":
        starts = list(range(0, length, step))
    else:
        last = max(0, length - step)
        starts = sorted({0, min(max(0, _EDGE // width - step // 2), last), last})
    for start in starts:
        yield slice(start, min(start + step, length))


def _cut(value: Any, part: slice, declared: Declared, length: int) -> Any:
    """That part of a tensor which has the whole's length; other values as they are."""
    if not cases.is_tensor(value):
        return value
    if declared.elementwise:
        return value.reshape(-1)[part] if value.numel() == length else value
    return value[part] if value.shape[:1] == (length,) else value


def _give_back() -> None:
    """Give back what torch keeps of memory that is free."""
    import torch  # noqa: PLC0415

    torch.cuda.empty_cache()


def _bytes(tensor: Tensor) -> int:
    return int(tensor.numel() * tensor.element_size())


def _free(kind: str) -> int:
    """Bytes that may still be taken on the CPU or on the current GPU."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    if kind == "cuda":
        _give_back()
        return int(torch.cuda.mem_get_info()[0])
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0

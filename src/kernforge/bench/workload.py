# SPDX-License-Identifier: Apache-2.0
"""Tensors, workloads, candidates and settings of a benchmark.

A project's ``benchmarks/workloads.py`` has ``WORKLOADS``, a list of ``Workload``, and
``benchmarks/candidates.py`` has the candidates:

    def kernel(module, *inputs): ...   # the project's kernel, loaded, and the inputs
    def eager(*inputs): ...            # plain torch; also timed under torch.compile
    PEERS = {"name": function}         # anything else, called with the inputs

A function that returns ``NotImplemented`` is left out of that workload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kernforge.compare.tensors import is_tensor
from kernforge.errors import UsageError
from kernforge.system.tables import page

Mode: TypeAlias = Literal["cold", "hot", "graph"]
Kind: TypeAlias = Literal["kernel", "published", "eager", "compiled", "peer", "reference"]

MODES: dict[str, tuple[Mode, ...]] = {"cpu": ("cold", "hot"), "cuda": ("cold", "hot", "graph")}
"""Modes of a device."""
MEANING = {
    "cold": "caches flushed before each call",
    "hot": "inputs read just before each call",
    "graph": "a CUDA graph of calls, each on its own inputs, caches flushed before the first",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that is drawn again for every round.

    Attributes:
        shape: sizes of the dimensions, or the one size.
        dtype: torch's name of the type, such as ``float16``.
        low: smallest value; without ``low`` and ``high``, floats are standard normal and integers
            have any value that fits one byte.
        high: one more than the largest integer; floats stay below it.
    """

    shape: tuple[int, ...] | int
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        import torch

        dtype = getattr(torch, self.dtype)
        return int(torch.empty(self.shape, dtype=dtype, device="meta").nbytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One computation, the same for all candidates.

    Attributes:
        name: name in the tables.
        inputs: the arguments: ``Tensor``s, and any other values, which are handed on.
        reference: from the inputs, on the measured device, to the right result, a tensor or a tuple
            of tensors, in higher precision than the candidates have.
        outputs: dtypes of the candidates' results; the first input's by default.
        bytes: bytes that must be moved at least; inputs and results once by default.
        flops: floating-point operations that must be done at least; 0 when they do not matter, by
            default what torch counts in the reference (products, convolutions, attention).
        tolerance: share of the expected value and of the root mean square; by dtype by default.
        inplace: positions of inputs that a candidate may change or return.
        size: position on a plot of time against size; 0: it is on no plot.
        family: workloads of one family form a line of that plot; by default, all that have a size.
        accepts: predicate ``(results, expected)``; True accepts results outside the tolerance.

    Raises:
        UsageError: the inputs are not a tuple with a tensor.
    """

    name: str
    inputs: tuple[Any, ...]
    reference: Callable[..., Any]
    outputs: tuple[str, ...] = ()
    bytes: int | None = None
    flops: int | None = None
    tolerance: float | None = None
    inplace: tuple[int, ...] = ()
    size: int = 0
    family: str = ""
    accepts: Callable[[tuple[Any, ...], tuple[Any, ...]], bool] | None = None

    def __post_init__(self) -> None:
        given: Any = self.inputs
        if not isinstance(given, tuple | list) or not self.tensors:
            raise UsageError(
                f"workload {self.name}: inputs is not a tuple with a Tensor",
                hint="one input is written (Tensor(...),); each field is explained in "
                f"{page('how-to/author/measure-a-kernel')}",
            )

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs that are tensors."""
        return tuple(given for given in self.inputs if isinstance(given, Tensor))


class Subject(ABC):
    """Inputs of calls, and the check of their results.

    Attributes:
        bytes: bytes that must be moved at least; 0 if unknown, then there is no roof.
        flops: operations that must be done at least; 0 where they do not matter.
        dtype: type of the matrix product that is the arithmetic ceiling.
        call_bytes: memory of the tensors of a call.
    """

    name: str
    call_bytes: int
    family, dtype = "all", "float32"
    size = bytes = flops = 0
    verifies = True

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    @abstractmethod
    def renew(self, number: int, count: int) -> None:
        """Draw the inputs of the first ``count`` calls of a round."""

    @abstractmethod
    def verify(self, place: int, returned: Any) -> str:
        """The error of a call's result; "" without one."""

    def values(self, place: int) -> Iterable[Any]:
        """The values that a call reads."""
        return self.calls[place]

    def touch(self, place: int) -> None:
        """Read and write the inputs of a call, so that they lie in the caches."""
        for each in self.values(place):
            if is_tensor(each) and str(each.layout) == "torch.strided":
                each.detach().copy_(each.detach().clone())


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One implementation to time.

    Attributes:
        kind: its role: a ``published`` one that is faster than ``kernel`` is a regression.
        function: function of a workload's arguments; for ``compiled``, before its compilation.
    """

    name: str
    kind: Kind
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The device, the modes and the length of a run.

    Attributes:
        most: rounds at most.
        block_s: seconds of calls that a candidate's turn should have.
    """

    device: str = "cpu"
    modes: tuple[Mode, ...] = ("cold", "hot")
    most: int = 40
    block_s: float = 0.02


def sizes(text: str) -> list[int]:
    """Sizes from ``2^10:2^30``, ``2^10:2^30:4`` (every fourth power) or ``1000,2^20``."""
    try:
        numbers = [_number(each) for each in text.split(":" if ":" in text else ",")]
        if ":" in text:
            size, last, step = (*numbers, 1)[:3]
            powers = range(0, max(0, last // size).bit_length(), step)
            numbers = [size << power for power in powers]
    except (ValueError, ZeroDivisionError) as error:
        raise UsageError(
            f"{text!r} is not a list of sizes", hint="write 2^10:2^30, 2^10:2^30:4 or 1000,2^20"
        ) from error
    if not numbers:
        raise UsageError(f"{text!r} is an empty range", hint="the smaller size comes first")
    return numbers


def _number(text: str) -> int:
    base, _, power = text.partition("^")
    return int(int(base) ** int(power or 1))

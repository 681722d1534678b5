# SPDX-License-Identifier: Apache-2.0
"""What is measured, as data: workloads, candidates, settings, and the layout of the exchange.

A project's ``benchmarks/workloads.py`` has ``WORKLOADS``, a list of ``Workload``: the judge's side,
which no candidate's process loads. ``benchmarks/candidates.py`` has what is timed:

    def kernel(module, *inputs): ...   # the project's kernel, loaded, and the inputs
    def eager(*inputs): ...            # plain torch; also timed under torch.compile
    PEERS = {"name": function}         # anything else, called with the inputs

A function that returns ``NotImplemented`` is left out of that workload.
"""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from kernforge.errors import UsageError, page

Mode: TypeAlias = Literal["cold", "hot", "launch", "graph", "graph-hot"]
Kind: TypeAlias = Literal[
    "kernel", "eager", "compiled", "peer", "nothing", "copy", "product", "hub", "hub reference"
]

SIZES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
}
# Of the reference's root mean square plus the expected value; integers must be equal.
TOLERANCES = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1.6e-2}
GRAPHS = ("graph", "graph-hot")
"""Modes in which calls are replayed from a CUDA graph."""
# Rows and columns of the matrices whose product is the arithmetic ceiling.
SIDE = {"cpu": 512, "cuda": 8192}
_ALIGNMENT = 256
_MOST_EXCHANGED = 256 << 20
_MOST_CALLS = {"cpu": 64, "cuda": 32}
_MOST_FLUSHED = 8  # On a CPU a flush takes longer than most calls.
# By the host's clock the first calls of a row find cold caches in the host, and the last one is
# waited for: a row is long, so that both are a small part of it.
_IN_A_ROW = {"launch": 128, "graph": 8, "graph-hot": 128}
_MOST_SET_UP = 32  # Where every call needs an object that is set up before.
MOST_ROWS = 3
WARM_UP = 16
_MOST_POWER = 40


def _are_sizes(given: Any) -> bool:
    """Whether what a user wrote is a tuple of numbers of elements."""
    several = isinstance(given, tuple | list)
    return several and all(isinstance(each, int) and each >= 0 for each in given)


def _is_plain(given: Any) -> bool:
    """Whether a message can hold it."""
    if isinstance(given, dict):
        return all(isinstance(name, str) and _is_plain(each) for name, each in given.items())
    if isinstance(given, tuple | list):
        return all(map(_is_plain, given))
    return given is None or isinstance(given, bool | int | float | str)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A tensor that is drawn again for every call.

    Attributes:
        shape: sizes of the dimensions.
        dtype: torch's name of the type, such as ``float16``.
        low: smallest value; without ``low`` and ``high``, floats are standard normal and integers
            have any value that fits one byte.
        high: one more than the largest integer; floats stay below it.

    Raises:
        UsageError: the shape is not a tuple of sizes, or the type is unknown.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.dtype not in SIZES:
            raise UsageError(
                f"a workload's tensor cannot be {self.dtype}", hint=f"one of {', '.join(SIZES)}"
            )
        if not _are_sizes(self.shape):
            raise UsageError(
                f"a workload's tensor cannot have the shape {self.shape!r}",
                hint="a tuple of sizes, none below 0, as (4096, 4096) or (4096,)",
            )

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return math.prod(self.shape) * SIZES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One thing to compute, for all candidates the same.

    Attributes:
        name: name in the tables.
        inputs: the arguments: tensors, and plain values: numbers, texts, None, and lists of them.
            Candidates get a list in the place of a tuple.
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
        held: bytes of each tensor that a candidate makes for itself before a call.
        late: whether candidates put results together after the clock stopped.
        accepts: from a result and the right one to whether the result is right although the
            tolerance does not allow it.

    Raises:
        UsageError: a field has a wrong type or value.
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
    held: tuple[int, ...] = ()
    late: bool = False
    accepts: Callable[[tuple[Any, ...], tuple[Any, ...]], bool] | None = None

    def __post_init__(self) -> None:
        if mistake := next(self._mistakes(), None):
            raise UsageError(
                f"workload {self.name}: {mistake}",
                hint=f"each field is explained in {page('how-to/author/measure-a-kernel')}",
            )

    def _mistakes(self) -> Iterator[str]:
        if not isinstance(self.inputs, tuple | list):
            yield "inputs is not a tuple; one input is written (Tensor(...),)"
        elif not self.tensors:
            yield "inputs has no Tensor, so there is nothing to draw"
        elif not all(each in range(len(self.inputs)) for each in self.inplace):
            yield f"inplace names {self.inplace}, and there are {len(self.inputs)} inputs"
        elif odd := [e for e in self.inputs if not (isinstance(e, Tensor) or _is_plain(e))]:
            yield f"inputs has {odd[0]!r}; it can be a Tensor, a number, a text, None or a list of them"
        if not callable(self.reference):
            yield "reference is not a function"
        if isinstance(self.outputs, str):
            yield f"outputs is a string; the dtype of one result is written ({self.outputs!r},)"
        elif unknown := [each for each in self.outputs if each not in SIZES]:
            yield f"outputs names {unknown[0]!r}, which is not one of {', '.join(SIZES)}"
        if not _are_sizes((self.size,)):
            yield f"size is {self.size!r}, not a number of elements"
        if self.bytes is not None and not (_are_sizes((self.bytes,)) and self.bytes > 0):
            yield f"bytes is {self.bytes!r}, not a number of bytes above 0"

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The inputs that are tensors."""
        return tuple(given for given in self.inputs if isinstance(given, Tensor))

    def result_dtypes(self, count: int) -> tuple[str, ...]:
        """Dtypes of ``count`` results."""
        dtypes = self.outputs or (self.tensors[0].dtype,) * count
        if len(dtypes) != count:
            raise UsageError(
                f"workload {self.name} names {len(dtypes)} dtypes for {count} results",
                hint="outputs must have as many as the reference returns",
            )
        return dtypes


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One thing that is timed, in a process of its own.

    Attributes:
        kind: which function of ``file`` it is, or one of the engine's own.
        file: the project's candidates.py.
        kernel: directory of a built kernel, or ``owner/name@version``; None: none is loaded.
        registry: where ``owner/name`` is looked up; None: the default registry.
        trust: the user's word that the kernel may be loaded.
        entry: ``Class.workload`` of a script of the hub's form.
        repo: the directory that such a script is run in.
        after: whether its ``verify_`` needs the workload to have been run.
        worker: the module that is started as its process.
    """

    name: str
    kind: Kind
    file: str = ""
    kernel: str | None = None
    registry: str | None = None
    trust: bool = False
    entry: str = ""
    repo: str = ""
    after: bool = False
    worker: str = "kernforge.bench.engine.worker"


NOTHING = Candidate(name="nothing", kind="nothing")
COPY = Candidate(name="copy", kind="copy")
PRODUCT = Candidate(name="matrix product", kind="product")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How it is measured.

    Attributes:
        device: ``cpu`` or ``cuda``.
        modes: cold (caches flushed), hot (inputs just read), launch (hot, the host's clock over
            calls in a row until the device is idle), graph (cold, a CUDA graph of calls in a row,
            replayed on new inputs), graph-hot (the same of as many calls as the L2 cache holds, on
            inputs that were just written).
        width: the interval may be this share of the median wide.
        least: rounds of every candidate at least.
        most: rounds at most; some more for a candidate whose times are in doubt.
        block_s: seconds of calls that a candidate's turn should have.
        seed: of the order and the inputs; drawn at random unless a run is to be repeated.
        patience_s: seconds that a candidate may take for a turn.
        processes: fresh processes of each candidate, one after the other, which share the rounds.
            If there are several, each is one sample; if there is one, each round is.
    """

    device: str = "cpu"
    modes: tuple[Mode, ...] = ("cold", "hot")
    width: float = 0.02
    least: int = 6
    most: int = 40
    block_s: float = 0.02
    seed: int = 0
    patience_s: float = 300.0
    processes: int = 1

    def session(self) -> Settings:
        """Settings of one of several processes: its share of the rounds."""
        if self.processes == 1:
            return self
        rounds = math.ceil(self.most / self.processes)
        return dataclasses.replace(self, processes=1, least=rounds, most=rounds)


def sizes(text: str) -> list[int]:
    """Sizes from ``2^10:2^30``, ``2^10:2^30:4`` (every fourth power) or ``1000,2^20``.

    Raises:
        UsageError: the text has another form.
    """
    try:
        if ":" not in text:
            return [_number(each) for each in text.split(",")]
        first, last, *step = text.split(":")
        powers = range(_power(first), _power(last) + 1, int(*step) if step else 1)
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"{text!r} is not a list of sizes", hint="write 2^10:2^30, 2^10:2^30:4 or 1000,2^20"
        ) from error
    if not powers:
        raise UsageError(f"{text!r} is an empty range", hint="the smaller size comes first")
    return [1 << power for power in powers]


def _number(text: str) -> int:
    return 1 << _power(text) if "^" in text else int(text)


def _power(text: str) -> int:
    base, _, power = text.strip().partition("^")
    if base != "2" or not 0 <= int(power) < _MOST_POWER:
        raise ValueError(text)
    return int(power)


def modes_of(device: str) -> tuple[Mode, ...]:
    """All modes of a device."""
    gpu_only: tuple[Mode, ...] = ("launch", "graph", "graph-hot")
    return ("cold", "hot", *gpu_only) if device == "cuda" else ("cold", "hot")


def fits_cache(set_bytes: int, cache_bytes: int) -> bool:
    """Whether a call's tensors fit into half of the L2 cache; the other half is for other data."""
    return 2 * set_bytes <= cache_bytes


def calls_of(
    call_s: float,
    set_bytes: int,
    settings: Settings,
    mode: Mode = "hot",
    *,
    set_up: bool = False,
    cache_bytes: int = 0,
) -> int:
    """Calls of one turn: enough to fill it, no more than the exchange holds.

    Args:
        set_up: whether every call needs its own object.
        cache_bytes: size of the GPU's L2 cache, which the calls of ``graph-hot`` share.
    """
    wanted = math.ceil(settings.block_s / max(call_s, 1e-7))
    most = _MOST_SET_UP if set_up else _IN_A_ROW["launch"]
    if mode == "graph-hot":
        most = min(_IN_A_ROW[mode], cache_bytes // 2 // max(set_bytes, 1))
    elif mode != "launch":
        most = _MOST_CALLS[settings.device]
    if mode == "cold" and settings.device == "cpu":
        most = _MOST_FLUSHED
    return max(1, min(wanted, most, _MOST_EXCHANGED // max(set_bytes, 1)))


def rows_of(row_s: float, settings: Settings) -> int:
    """Rows of calls in a round: several where a row is short, because a row is one time."""
    return max(1, min(MOST_ROWS, math.ceil(settings.block_s / max(row_s, 1e-7))))


def in_a_row(mode: Mode, calls: int) -> int:
    """Number of calls in one time: several where the start of a call overlaps the end of another."""
    return max(1, min(calls, _IN_A_ROW.get(mode, 1)))


def samples_of(mode: Mode, calls: int) -> int:
    """Number of times that so many calls give."""
    return math.ceil(calls / in_a_row(mode, calls))


def turns(names: Sequence[str], seed: int, turn: int) -> list[str]:
    """The candidates in the random order of a round."""
    order = list(names)
    random.Random(f"{seed}/{turn}").shuffle(order)  # noqa: S311 - an order, no secret
    return order


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Positions of tensors in the memory that judge and worker share.

    A set is a call's inputs and then its results; the sets follow each other.
    """

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]

    @property
    def set_bytes(self) -> int:
        """Bytes of one call."""
        return sum(_padded(each.nbytes) for each in (*self.inputs, *self.outputs))

    def offsets(self, call: int) -> tuple[int, ...]:
        """Where each input and then each result of a call begins."""
        starts, at = [], call * self.set_bytes
        for each in (*self.inputs, *self.outputs):
            starts.append(at)
            at += _padded(each.nbytes)
        return tuple(starts)


def _padded(size: int) -> int:
    return max(1, -(-size // _ALIGNMENT)) * _ALIGNMENT

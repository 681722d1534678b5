# SPDX-License-Identifier: Apache-2.0
"""What the processes of a benchmark send each other: frozen dataclasses, one line of JSON each.

The receiver names the kinds that it expects. A worker runs code that is not trusted: a line that is
not such a message, with exactly its fields and their types, is refused here.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import os
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    TypeAlias,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from kernforge.bench.engine.workload import Candidate, Layout, Mode

if TYPE_CHECKING:
    from kernforge.system.process import PipedProcess

Kind = TypeVar("Kind")

# Bound now: a worker loads this before the candidate, which may patch json.
_dumps, _loads = json.dumps, json.loads
_KIND = "kind"
_SHOWN = 80


class MessageError(Exception):
    """A line is not a message of the kinds that are expected."""


# -- judge to worker -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BufferAddress:
    """Where the memory lies that judge and worker share.

    Attributes:
        path: the host's memory as a file; empty where it is the GPU's.
        handle: the GPU's memory as CUDA's interprocess handle, in hexadecimal digits.
    """

    size: int
    path: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStart:
    """What a worker is started with.

    Attributes:
        side: rows and columns of the matrices that a product multiplies.
        cpu: the processor on which timed calls are made; None: any.
    """

    device: str
    candidate: Candidate
    buffer: BufferAddress
    side: int
    cpu: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Argument:
    """One argument of a call: a tensor of the exchange, or a plain value."""

    is_tensor: bool = False
    value: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BeginWorkload:
    """Begin another workload. The reference is not part of it.

    Attributes:
        arguments: of the candidate's function, in their order.
        inplace: positions of arguments that may be changed or returned.
        late: whether results are put together after the clock stopped.
        held: bytes of each tensor that is made besides, as other candidates make them.
        bytes: what must be moved at least.
        dtype: of the matrices that a product multiplies.
    """

    layout: Layout
    arguments: tuple[Argument, ...]
    inplace: tuple[int, ...]
    late: bool
    held: tuple[int, ...]
    bytes: int
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepare:
    """Lay out the inputs of so many calls."""

    calls: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Make the calls in this mode and time them."""

    mode: Mode


@dataclass(frozen=True, slots=True)
class CollectResults:
    """Copy results to the exchange that are put together only after the clock stopped."""


@dataclass(frozen=True, slots=True)
class CollectInputs:
    """Copy to the exchange what the calls left of their inputs."""


@dataclass(frozen=True, slots=True)
class ReleaseMemory:
    """Free the memory that is not needed before the next turn."""


Request: TypeAlias = (
    BeginWorkload | Prepare | Measure | CollectResults | CollectInputs | ReleaseMemory
)
REQUESTS: tuple[type[Request], ...] = get_args(Request)

# -- worker to judge -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """The request is done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """Nanoseconds a call: of each call, or of each row of calls.

    Raises:
        MessageError: a time is negative.
    """

    times: tuple[float, ...]

    def __post_init__(self) -> None:
        if any(each < 0 for each in self.times):
            raise MessageError("a time is negative")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """The candidate has no such mode, or does not compute this workload at all.

    Attributes:
        in_all_modes: whether it does not compute the workload.
    """

    why: str
    in_all_modes: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """The candidate did what no measurement may rest on."""

    why: str


Reply: TypeAlias = Acknowledged | Times | Skipped | Refused

# -- lines -----------------------------------------------------------------------------------


def encode(message: Any) -> str:
    """A message as one line, without its end."""
    return _dumps({_KIND: type(message).__name__, **dataclasses.asdict(message)})


def decode(line: str, kinds: Iterable[type[Kind]]) -> Kind:
    """The message of a line, which may be any text: a worker may send anything.

    Raises:
        MessageError: the line is not a message of these kinds, or a field is missing, unknown or of
            another type.
    """
    try:
        document = _loads(line)
    except (ValueError, RecursionError) as error:  # too long a number, too deep a list
        raise MessageError(f"{line[:_SHOWN]!r} is not JSON") from error
    name = document.pop(_KIND, None) if isinstance(document, dict) else None
    for kind in kinds:
        if kind.__name__ == name:
            return _instance(document, kind)
    raise MessageError(f"{line[:_SHOWN]!r} is not a message that is expected")


def receive(pipes: PipedProcess, seconds: float, kinds: Iterable[type[Kind]]) -> Kind:
    """The next message of a process.

    Raises:
        MessageError: none comes in time, or it is not of these kinds; with the process's last words.
    """
    why = ""
    if (line := pipes.receive(seconds)) is not None:
        try:
            return decode(line, kinds)
        except MessageError as error:
            why = str(error)
    why = why or pipes.last_words()
    raise MessageError(
        "its process ended, stopped answering or sent an answer that cannot be read"
        + (f": {why}" if why else "")
    )


def _instance(document: dict[str, Any], kind: type[Kind]) -> Kind:
    hints = _hints(kind)  # type: ignore[arg-type]  # classes are hashable
    if document.keys() != hints.keys():
        raise MessageError(f"{kind.__name__} has the fields {', '.join(hints) or 'none'}")
    return kind(**{name: _value(document[name], hints[name]) for name in hints})


@functools.cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def _value(value: Any, wanted: Any) -> Any:
    """A value of JSON as the type that an annotation wants.

    Raises:
        MessageError: it is of another type.
    """
    origin, inner = get_origin(wanted), get_args(wanted)
    if origin in (Union, types.UnionType):  # of a type and None
        return None if value is None else _value(value, inner[0])
    if origin is tuple and isinstance(value, list):
        return tuple(_value(each, inner[0]) for each in value)
    if isinstance(value, dict):
        if origin is dict:
            return {name: _value(each, inner[1]) for name, each in value.items()}
        if dataclasses.is_dataclass(wanted):
            return _instance(value, wanted)  # type: ignore[arg-type]
    if wanted is float and _is_finite(value):
        return float(value)
    if wanted is Any or (isinstance(value, str) and origin is Literal and value in inner):
        return value
    if wanted is str and isinstance(value, str):
        return value.encode(
            errors="replace"
        ).decode()  # half of a pair of surrogates cannot be printed
    if type(value) is wanted and wanted in (int, bool):
        return value
    raise MessageError(f"{type(value).__name__} where {wanted} is expected")


def _is_finite(value: Any) -> bool:
    try:
        return type(value) in (int, float) and math.isfinite(value)
    except OverflowError:  # an integer that no float is as large as
        return False


class JudgePipe:
    """A worker's ends of the pipes to the judge."""

    def __init__(self, reading: str, writing: str, kinds: Iterable[type[Any]]) -> None:
        self._requests, self._replies = os.fdopen(int(reading)), os.fdopen(int(writing), "w")
        self._kinds = tuple(kinds)
        self._encode, self._decode = encode, decode

    def send(self, message: Any) -> None:
        """Send a message."""
        self._replies.write(self._encode(message) + "\n")
        self._replies.flush()

    def __iter__(self) -> Iterator[Any]:
        """The judge's messages, until it closes the pipe."""
        for line in self._requests:
            yield self._decode(line, self._kinds)

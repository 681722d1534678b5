# SPDX-License-Identifier: Apache-2.0
"""Limits on untrusted input, and the readers that hold them: JSON, TOML, downloads.

Projects, locks, statements, registries, indexes, archives and machine code are untrusted. A reader
refuses input with a ``ValueError``, as for text that cannot be parsed: a caller converts one
exception into an error of its own.
"""

from __future__ import annotations

import contextlib
import json
import math
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernforge.errors import KernforgeError, NetworkError

DOCUMENT = 64 * 10**6
"""Bytes of a JSON document, an index page or a response of a hub."""
TEXT = 10**6
"""Bytes of a TOML file."""
NAME = 4096
"""Characters of a path."""
MEMBERS = 200_000
"""Files in a listing or an index page."""
FILE = 4 << 30
"""Bytes of the largest file of an archive or a kernel."""
RECORDS = 10**6
"""Sections, symbols and other records of machine code."""
SLACK = 64 << 20
"""Bytes of machine code that may be unpacked whatever their ratio."""
SLOWEST = 1000
"""Bytes a second below which a download is aborted."""
SILENCE_S = 30.0
"""Seconds without a byte after which a request is aborted."""

_WINDOW_S = 30.0  # over which the speed of a download counts
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_KEY_PARTS = 64
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")


class DocumentError(ValueError):
    """A refused document; the message is the reason, in one line."""


class StreamError(NetworkError):
    """A server that sends too much or too slowly; a retry does not help."""


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document in UTF-8.

    Raises:
        ValueError: it is not JSON, too large or too deep, has a key twice (which ``kernels``
            refuses too), or a NUL character or half a surrogate pair.
    """
    text = _text(data, DOCUMENT)
    with _refusing_deep():
        document = json.loads(text, object_pairs_hook=_table)
        _refuse_odd_text(text, document)
    return document


def parse_toml(data: bytes | str) -> dict[str, Any]:
    """Parse a TOML document in UTF-8.

    Raises:
        ValueError: it is not TOML, too large or too deep, or has a NUL character. A mistake in the
            grammar is a ``tomllib.TOMLDecodeError`` with its line.
    """
    import tomllib  # noqa: PLC0415 - 13 ms, and few processes that load kernels read TOML

    text = _text(data, TEXT)
    for number, line in enumerate(text.split("\n"), 1):
        # A key of n parts takes n * n steps: one line could take hours. Quoted dots are no parts.
        if line.count(".") > _KEY_PARTS and _QUOTED.sub("", line).count(".") > _KEY_PARTS:
            raise DocumentError(f"line {number} has a key of more than {_KEY_PARTS} parts")
    with _refusing_deep():
        document = tomllib.loads(text)
        _refuse_odd_text(text, document)
    return document


class Meter:
    """The size and the time of one exchange: a request with its redirects, or all pages of a list.

    Only content is progress: interim answers, headers and trailers may go on for half a minute.

    Args:
        source: what errors name.
        most: bytes of content.
        within_s: seconds for the whole; None for a file, whose size is not known.
        silence_s: seconds without a byte.
    """

    def __init__(
        self,
        source: str,
        most: int,
        within_s: float | None = None,
        silence_s: float = SILENCE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source, self._most, self._within_s, self._clock = source, most, within_s, clock
        self._silence_s, self._total, self._start = silence_s, 0, clock()
        # Who lets a server be silent for longer waits as long for its content.
        self._window_s = _WINDOW_S * max(1.0, silence_s / SILENCE_S)
        self.restart()

    def restart(self) -> None:
        """Begin a request: what it sends is no time of the server."""
        self._began, self._window = self._clock(), 0

    def count(self, size: int) -> None:
        """Count bytes of content."""
        self._total, self._window = self._total + size, self._window + size
        if self._total > self._most:
            raise StreamError(
                f"{self._source} sends more than the expected {self._most:,} bytes",
                hint="the download was discarded; use another registry or index",
            )
        self.wait_s()

    def left_s(self) -> float:
        """Seconds until the whole exchange must be over."""
        return math.inf if self._within_s is None else self._start + self._within_s - self._clock()

    def wait_s(self) -> float:
        """Seconds that the next read may take.

        Raises:
            StreamError: the time is over, or fewer than ``SLOWEST`` bytes a second came over half
                a minute.
        """
        now, window, left = self._clock(), self._window, self.left_s()
        passed = now - (self._start if left <= 0 else self._began)
        slow = passed >= self._window_s and window < SLOWEST * passed
        if left <= 0 or slow:
            what = f"{window:,} bytes" if slow else "no complete answer"
            raise StreamError(
                f"{self._source} sent {what} in {passed:.0f} seconds",
                hint="run the command again later, or use another server",
            )
        if passed >= self._window_s:
            self.restart()
        return min(left, self._silence_s)


def bounded(
    chunks: Iterable[bytes],
    source: str,
    most: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """The chunks of a download, with limits on its size and its speed, see ``Meter``.

    Args:
        chunks: bytes as they arrive: a chunk that waits until it is full hides a slow server.
    """
    meter = Meter(source, most, clock=clock)
    for chunk in chunks:
        meter.count(len(chunk))
        yield chunk


@contextlib.contextmanager
def foreign_parser(error: Callable[[str], KernforgeError]) -> Iterator[None]:
    """Convert every exception of another package's parser of untrusted bytes.

    Parsers of archives and machine code follow offsets, and a wrong one may raise any exception.

    Args:
        error: makes the error from a reason of one line.
    """
    try:
        yield
    except (KernforgeError, MemoryError, FileNotFoundError, PermissionError):
        raise
    except Exception as cause:
        reason = " ".join(str(cause).split())[:200] or type(cause).__name__
        raise error(reason) from cause


def _text(data: bytes | str, limit: int) -> str:
    if len(data) > limit:
        raise DocumentError(f"it has {len(data):,} bytes, more than {limit:,}")
    return data.decode() if isinstance(data, bytes) else data


def _table(pairs: list[tuple[str, object]]) -> dict[str, object]:
    table = dict(pairs)
    if len(table) != len(pairs):
        raise DocumentError(f"a key occurs twice in the table of {', '.join(table)[:200]!r}")
    return table


@contextlib.contextmanager
def _refusing_deep() -> Iterator[None]:
    try:
        yield
    except RecursionError:
        raise DocumentError("its tables and lists lie too deep inside each other") from None


def _refuse_odd_text(text: str, value: object) -> None:
    """Refuse half a surrogate pair or a NUL character, which only an escape can write."""
    if "\\u" not in text and "\\U" not in text:
        return
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str) and _NO_TEXT.search(item):
            raise DocumentError("it has text with half a surrogate pair or a NUL character")
        if isinstance(item, dict):
            todo.extend([*item, *item.values()])
        elif isinstance(item, list):
            todo.extend(item)

# SPDX-License-Identifier: Apache-2.0
"""Limits on untrusted input, and the readers that hold them: JSON, TOML, downloads.

Projects, locks, policies, statements, registries, indexes, archives and machine code are written by
somebody else. What a reader refuses is a ``ValueError``, as for text that cannot be parsed, so that
its caller converts one exception into an error of its own.
"""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernforge.errors import KernforgeError, NetworkError

DOCUMENT = 64 * 10**6
"""Bytes of a JSON document, an index page or an answer of a hub."""

TEXT = 10**6
"""Bytes of a TOML file, which people write."""

NAME = 4096
"""Characters of a path."""

MEMBERS = 200_000
"""Files in a listing or an index page."""

FILE = 4 << 30
"""Bytes of the largest file of an archive or a kernel."""

RECORDS = 10**6
"""Sections, symbols and other records of machine code."""

SLACK = 64 << 20
"""Bytes of machine code that may unpack to any number of times their size."""

SLOWEST = 1000
"""Bytes a second below which a download is given up."""

_WINDOW_S = 30.0  # over which the speed of a download counts
_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_KEY_PARTS = 64
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")


class DocumentError(ValueError):
    """A document that is not read; the message says why, in one line."""


class StreamError(NetworkError):
    """A server sends too much or too slowly; asking it again does not help."""


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document in UTF-8.

    Raises:
        ValueError: it is not JSON, is too large or too deep, has a key twice (which ``kernels``
            refuses too), or has text that no file can hold.
    """
    text = _text(data, DOCUMENT)
    with _refusing_deep():
        found = json.loads(text, object_pairs_hook=_table)
        _refuse_odd_text(text, found)
    return found


def parse_toml(data: bytes | str) -> dict[str, Any]:
    """Parse a TOML document in UTF-8.

    Raises:
        ValueError: it is not TOML, or is refused as JSON is. A mistake in the grammar is a
            ``tomllib.TOMLDecodeError``, which says its line.
    """
    import tomllib  # noqa: PLC0415 - 13 ms, and few processes that load kernels read TOML

    text = _text(data, TEXT)
    for number, line in enumerate(text.split("\n"), 1):
        # A key of n parts takes n * n steps: one line could take hours. Quoted dots are no parts.
        if line.count(".") > _KEY_PARTS and _QUOTED.sub("", line).count(".") > _KEY_PARTS:
            raise DocumentError(f"line {number} has a key of more than {_KEY_PARTS} parts")
    with _refusing_deep():
        found = tomllib.loads(text)
        _refuse_odd_text(text, found)
    return found


def bounded(
    chunks: Iterable[bytes],
    source: str,
    most: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[bytes]:
    """Pass on what a server sends, until it is too much or comes too slowly.

    Args:
        chunks: the bytes as they arrive: one that waits until it is full hides a slow server.
        source: the address, as errors call it.
        most: bytes that may come.
        clock: monotonic seconds.

    Raises:
        StreamError: more came, or fewer than ``SLOWEST`` a second over half a minute.
    """
    total = window = 0
    began = clock()
    for chunk in chunks:
        total, window = total + len(chunk), window + len(chunk)
        if total > most:
            raise StreamError(
                f"{source} sends more than the {most:,} bytes that are expected there",
                hint="the server is wrong or means harm; nothing of it was kept",
            )
        if (passed := clock() - began) >= _WINDOW_S:
            if window < SLOWEST * passed:
                raise StreamError(
                    f"{source} sent {window:,} bytes in {passed:.0f} seconds",
                    hint="try again later, or from another server",
                )
            began, window = clock(), 0
        yield chunk


@contextlib.contextmanager
def foreign_parser(error: Callable[[str], KernforgeError]) -> Iterator[None]:
    """Turn whatever a parser of another package raises on untrusted bytes into one of our errors.

    Parsers of archives and machine code follow offsets, and where one is wrong they raise what
    comes: no list of their exceptions is complete.

    Args:
        error: makes the error from the reason, which is one line.
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

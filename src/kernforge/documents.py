# SPDX-License-Identifier: Apache-2.0
"""Parse JSON and TOML that others wrote, within the limits of ``budgets``.

What is refused is a ``ValueError``, as for text that cannot be parsed, so that a reader converts
one exception into its own error: documents that are too large, too deep or of too many values; keys
that occur twice; numbers that are none (``NaN``); text that no file can hold (half a surrogate
pair, a NUL character).
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from kernforge import budgets
from kernforge.errors import KernforgeError

_NO_TEXT = re.compile("[\x00\ud800-\udfff]")
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*+"|'[^'\n]*+'""")


class DocumentError(ValueError):
    """A document that is not read; the message says why, in one line."""


def parse_json(data: bytes | str) -> Any:
    """Parse a JSON document in UTF-8.

    Raises:
        ValueError: it is not JSON, or is refused.
    """
    limits = budgets.current()
    text = _text(data, limits.document)
    # Too many rather than too few: those in strings count too.
    if (count := text.count(",") + text.count("[") + text.count("{")) > limits.values:
        raise DocumentError(f"it has {count:,} values, more than {limits.values:,}")
    try:
        found = json.loads(text, object_pairs_hook=_table, parse_constant=_no_number)
    except RecursionError:
        raise _too_deep(limits.nesting) from None
    refuse_deep(found)
    if "\\u" in text:
        _refuse_odd_text(found)
    return found


def parse_toml(data: bytes | str) -> dict[str, Any]:
    """Parse a TOML document in UTF-8.

    Raises:
        ValueError: it is not TOML, or is refused. A mistake in the grammar is a
            ``tomllib.TOMLDecodeError``, which says its line.
    """
    import tomllib  # noqa: PLC0415 - 13 ms, and few processes that load kernels read TOML

    limits = budgets.current()
    text = _text(data, limits.text)
    for number, line in enumerate(text.split("\n"), 1):
        # A key of n parts takes n * n steps. Dots in quotes are not those of a key.
        if line.count(".") > limits.nesting and _QUOTED.sub("", line).count(".") > limits.nesting:
            raise DocumentError(f"line {number} has a key of more than {limits.nesting} parts")
    try:
        found = tomllib.loads(text)
    except RecursionError:
        raise _too_deep(limits.nesting) from None
    refuse_deep(found)
    if "\\u" in text or "\\U" in text:
        _refuse_odd_text(found)
    return found


def refuse_deep(value: object) -> None:
    """Refuse tables and lists that lie too deep inside each other, and names that are too long.

    Raises:
        DocumentError: it is so.
    """
    limits = budgets.current()
    level, depth = [value], 0
    while level:
        if (depth := depth + 1) > limits.nesting:
            raise _too_deep(limits.nesting)
        below: list[object] = []
        for item in level:
            if isinstance(item, dict):
                if item and max(map(len, item)) > limits.name:
                    raise DocumentError(f"it has a name of more than {limits.name:,} characters")
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
        level = [item for item in below if isinstance(item, dict | list)]


@contextlib.contextmanager
def foreign_parser(error: Callable[[str], KernforgeError]) -> Iterator[None]:
    """Turn whatever a parser of another package raises on bytes of others into one of our errors.

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
        seen: set[str] = set()
        repeated = {key for key, _ in pairs if key in seen or seen.add(key)}  # type: ignore[func-returns-value]
        raise DocumentError(f"the key {', '.join(map(repr, sorted(repeated)))[:200]} occurs twice")
    return table


def _no_number(text: str) -> object:
    raise DocumentError(f"{text} is not a number of JSON")


def _refuse_odd_text(value: object) -> None:
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, str):
            if _NO_TEXT.search(item):
                raise DocumentError("it has text with half a surrogate pair or a NUL character")
        elif isinstance(item, dict):
            todo.extend(item)
            todo.extend(item.values())
        elif isinstance(item, list):
            todo.extend(item)


def _too_deep(limit: int) -> DocumentError:
    return DocumentError(f"its tables and lists lie more than {limit} deep inside each other")

# SPDX-License-Identifier: Apache-2.0
"""Messages about the mistakes in a build.toml, one line each.

A line is ``file:line: [table] key = value: expected ...``, so that an editor can jump to it.
"""

from __future__ import annotations

import difflib
import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from pydantic_core import ErrorDetails

from kernforge.manifest.editions import Data
from kernforge.manifest.model import (
    KERNELS,
    TABLES,
    Backend,
    Document,
    KernelDependency,
    Path,
    Table,
    fields,
)

_LONGEST_VALUE = 60
# The start of a file whose lines are looked up, in a time that grows with the square.
_MOST_LINES, _MOST_TEXT = 400, 30_000
# Pydantic's name of an error -> the message.
_EXPECTED = {
    "string_type": "expected a string",
    "int_type": "expected an integer",
    "greater_than_equal": "expected 0 or more",
    "tuple_type": "expected a list",
    "dict_type": "expected a table",
    "model_type": "expected a table",
    "model_attributes_type": "expected a table",
    "string_pattern_mismatch": "expected two or more lower-case letters, digits and dashes, "
    "starting with a letter and not ending with a dash",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A mistake in a file.

    Attributes:
        path: keys and list indices from the top of the file; ``()`` is the file itself.
    """

    path: Path
    problem: str


def from_pydantic(error: ErrorDetails, data: Data) -> Mistake:
    """The mistake of one error of a failed ``Document.model_validate(data)``."""
    path, kind = _path(error["loc"]), error["type"]
    if isinstance(path[-1], int) and not isinstance(_find(path[:-1], data), list):
        path = path[:-1]  # one text, read as a list of one
    context = error.get("ctx", {})
    match kind:
        case "missing":
            problem = f"missing. {fields(_table(path[:-1], data))[str(path[-1])].description}"
        case "union_tag_not_found":
            path = (*path, "backend")
            problem = f"missing. Expected one of {', '.join(KERNELS)}"
        case "extra_forbidden":
            problem = _unknown_key(path, data)
        case "union_tag_invalid":
            path = (*path, "backend")
            problem = _not_one_of(KERNELS, path, data)
        case "literal_error" if error["loc"][-1] == "[key]":
            problem = f"unknown backend{_or_list(str(path[-1]), get_args(Backend))}"
        case "literal_error":
            problem = _not_one_of(re.findall(r"'([^']*)'", context["expected"]), path, data)
        case "string_pattern_mismatch":
            dashed = str(_find(path, data)).replace("_", "-").lower()
            meant = (
                f"; did you mean '{dashed}'?" if re.fullmatch(context["pattern"], dashed) else ""
            )
            problem = f"{_EXPECTED[kind]}{meant}"
        case "value_error":
            problem = str(context["error"])
        case _:
            problem = _EXPECTED.get(kind, error["msg"])
    return Mistake(path=path, problem=problem)


def report(mistakes: Iterable[Mistake], data: Data, *, text: str, source: str) -> str:
    """The mistakes as text, one on a line, in the order of the file."""
    begun = _begun(text)
    ordered = sorted(((_line(m.path, begun), m) for m in mistakes), key=lambda pair: pair[0])
    return "\n".join(
        f"{source}{f':{line}' if line else ''}: {_place(mistake.path, data)}{mistake.problem}"
        for line, mistake in ordered
    )


# Other words for backends; the spelling of 'gpu' alone is nearest to 'xpu'.
_MEANT = {"gpu": "cuda", "nvidia": "cuda", "amd": "rocm", "hip": "rocm", "intel": "xpu"}


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """``"; did you mean 'src'?"``, or empty if no option is similar or known by this word."""
    by_lower = {option.lower(): option for option in options}
    close = [_MEANT[word.lower()]] if _MEANT.get(word.lower()) in by_lower else []
    close = close or difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f"; did you mean '{by_lower[close[0]]}'?" if close else ""


def _path(loc: tuple[int | str, ...]) -> Path:
    """Path in the file: pydantic's location without the names of the unions' branches."""
    if loc[0] == "kernel" or loc[:2] == ("torch", "stable-abi"):
        loc = (*loc[:2], *loc[3:])
    return loc[:-1] if loc[-1] == "[key]" else loc


def _not_one_of(options: Iterable[str], path: Path, data: Data) -> str:
    value = _find(path, data)
    suggestion = did_you_mean(value, options) if isinstance(value, str) else ""
    return f"expected one of {', '.join(options)}{suggestion}"


def _or_list(word: str, options: Iterable[str]) -> str:
    return did_you_mean(word, options) or f"; expected one of {', '.join(options)}"


def _unknown_key(path: Path, data: Data) -> str:
    key = str(path[-1])
    owners = [name for name, kind in KERNELS.items() if key in fields(kind)]
    if path[0] == "kernel" and owners:
        return f"unknown key for this backend; it is valid only for {', '.join(owners)}"
    return f"unknown key{_or_list(key, fields(_table(path[:-1], data)))}"


def _table(path: Path, data: Data) -> type[Table]:
    """The type of the table at a path."""
    if not path:
        return Document
    if path[0] == "kernel":
        return KERNELS[_find((*path, "backend"), data)]
    return TABLES.get(_dotted(path), KernelDependency)


def _begun(text: str) -> list[tuple[int, Data]]:
    """The data of a file up to each of its lines, with the line where that part begins.

    ``tomllib`` gives no positions, but parses the first lines of a file; a list that they leave
    open is closed for it.
    """
    lines, begun, begin = text[:_MOST_TEXT].split("\n")[:_MOST_LINES], [], 1
    for number in range(1, len(lines) + 1):
        for closing in ("", "\n]", "\n]]"):
            try:
                data = tomllib.loads("\n".join(lines[:number]) + closing)
            except tomllib.TOMLDecodeError:
                continue
            begun.append((begin, data))
            begin = number + 1
            break
    return begun


def _line(path: Path, begun: Sequence[tuple[int, Data]]) -> int:
    """The line of the key, or of the nearest table that contains it; 0 if there is none."""
    if not path:
        return 0
    lines = (line for line, data in begun if _find(path, data) is not None)
    return next(lines, 0) or _line(path[:-1], begun)


def _place(path: Path, data: Data) -> str:
    """``[table] key = value: ``, with the parts that are known."""
    if not path:
        return ""
    value = _find(path, data)
    shown = "" if value is None or isinstance(value, dict) else f" = {_show(value)}"
    if len(path) == 1 and shown:
        return f"{path[0]}{shown}: "
    depth = 2 if path[0] == "kernel" or _dotted(path[:2]) in TABLES else 1
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path[depth:])
    return f"[{_dotted(path[:depth])}]{' ' if key else ''}{key.removeprefix('.')}{shown}: "


def _dotted(path: Path) -> str:
    return ".".join(map(str, path))


def _show(value: object) -> str:
    text = json.dumps(value, default=str, ensure_ascii=False)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def _find(path: Path, data: Data) -> Any:
    node: Any = data
    for part in path:
        try:
            node = node[part]
        except (KeyError, IndexError, TypeError):
            return None
    return node

# SPDX-License-Identifier: Apache-2.0
"""Operator schemas: found in the sources that register them, and read into their parts.

The grammar is torch's, ``name.overload(Type arg=default, *, Type arg) -> Type``. The strings are
taken from ``.def("...")`` in C++ and CUDA sources when a variant is built, and recorded in its
metadata. They are not taken from the binary: a compiler keeps a literal that is copied into a
``std::string``, as torch's full C++ API does, in pieces that cannot be put together again.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.source.python_api import Entry, Parameter

if TYPE_CHECKING:
    from collections.abc import Iterable

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/                      # a comment
    |R"(?P<mark>[^\s()\\]{0,16})\((?P<raw>.*?)\)(?P=mark)"
    |"(?P<text>(?:[^"\\\n]|\\.)*)"
    |'(?:[^'\\\n]|\\.)*'
    |[.>]\s*def\s*(?P<def>\()
    |(?P<space>\s+)|.""",
    re.DOTALL | re.VERBOSE,
)
_SCHEMA = re.compile(
    r"(?:\w+::)?(?P<name>\w+(?:\.\w+)?)\s*\((?P<args>.*)\)\s*->\s*(?P<returns>.+)", re.DOTALL
)
_NAME = re.compile(r"(?:\w+::)?(\w+(?:\.\w+)?)")
_MUTATED = re.compile(r"\([a-z]+!(?:\s*->\s*[^)]*)?\)")
_ARGUMENT = re.compile(r"(?P<type>\S.*?)(?:\s+(?P<name>[A-Za-z_]\w*))?", re.DOTALL)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)


def schemas_in(source: str) -> tuple[str, ...]:
    """What a C++ source registers: schemas, and bare names where torch infers the schema.

    Literals beside each other are joined, as a compiler does. Both branches of a preprocessor
    condition count; a name or schema that a macro makes is not seen.

    Args:
        source: text of the file.
    """
    found: list[str] = []
    literal: str | None = None
    for match in _TOKEN.finditer(source):
        if match["def"]:
            literal = ""
        elif literal is None or match[0].startswith(("//", "/*")) or match["space"]:
            continue
        elif match["text"] is not None:
            literal += _ESCAPE.sub(lambda m: {"n": "\n", "t": "\t"}.get(m[1], m[1]), match["text"])
        elif match["raw"] is not None:
            literal += match["raw"]
        else:
            if literal and (_SCHEMA.fullmatch(literal.strip()) or _NAME.fullmatch(literal.strip())):
                found.append(" ".join(literal.split()))
            literal = None
    return tuple(dict.fromkeys(found))


def read_operators(schemas: Iterable[str]) -> dict[str, Entry]:
    """The operators by ``ops.<name>``, with their parameters where the schema gives them."""
    return dict(sorted(_read(schema) for schema in schemas))


def _read(schema: str) -> tuple[str, Entry]:
    match = _SCHEMA.fullmatch(schema.strip())
    if match is None:
        bare = _NAME.fullmatch(schema.strip())
        return f"ops.{bare[1] if bare else schema}", Entry(kind="operator")
    by_name = False
    parameters = []
    for text in _split(match["args"]):
        if text == "*":
            by_name = True
        else:
            parameters.append(_parameter(text, by_name=by_name))
    returns = _type(match["returns"])
    entry = Entry(kind="operator", parameters=tuple(parameters), returns=returns)
    return f"ops.{match['name']}", entry


def _parameter(text: str, *, by_name: bool) -> Parameter:
    declared, equals, default = text.partition("=")
    match = _ARGUMENT.fullmatch(declared.strip())
    return Parameter(
        name=(match["name"] or "") if match else "",
        passed="by name" if by_name else "either way",
        default=default.strip() if equals else None,
        type=_type(match["type"] if match else declared),
    )


def _type(text: str) -> str:
    """A type whose spelling says only what it means: which letter marks a mutation does not."""
    return re.sub(r"\s+", "", _MUTATED.sub("!", text))


def _split(text: str) -> list[str]:
    """Split at the commas that stand in no bracket and no string."""
    parts, depth, quote, last = [], 0, "", 0
    for place, character in enumerate(text):
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in "([":
            depth += 1
        elif character in ")]":
            depth -= 1
        elif character == "," and not depth:
            parts.append(text[last:place].strip())
            last = place + 1
    parts.append(text[last:].strip())
    return [part for part in parts if part]

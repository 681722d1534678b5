# SPDX-License-Identifier: Apache-2.0
"""The line of each key of a TOML document, for messages.

``tomllib`` gives no positions. This scanner finds only the lines, in text that ``tomllib`` has
parsed without an error (the grammar is TOML 1.0's, https://toml.io/en/v1.0.0).
"""

from __future__ import annotations

import re
import tomllib
from typing import TypeAlias

Path: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_KEY = re.compile(r"""[A-Za-z0-9_-]+|"(?:\\.|[^"\\])*"|'[^']*'""")
# A multi-line string may end with up to two quotes before the closing three.
_STRING = re.compile(
    r'"""(?:\\.|[^\\])*?"{3,5}|' + r"'''.*?'{3,5}|" + r'"(?:\\.|[^"\\])*"|' + r"'[^']*'", re.DOTALL
)
_SCALAR = re.compile(r"[^,\]}#\n]*")


def key_lines(text: str) -> dict[Path, int]:
    """The line of every table, key and list item, counted from 1.

    Returns:
        Line by path: ``("kernel", "relu", "src", 0)`` is the first item of ``[kernel.relu] src``.
        The line of a table with headers is that of its first header.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text
        self.pos = 0
        self.lines: dict[Path, int] = {}
        self.counts: dict[Path, int] = {}  # arrays of tables: how many headers so far

    def scan(self) -> dict[Path, int]:
        table: Path = ()
        self._skip(_BLANK)
        while self.pos < len(self.text):
            if self._eat("[["):
                table = self._header(array=True)
            elif self._eat("["):
                table = self._header(array=False)
            else:
                self._pair(table)
            self._skip(_BLANK)
        return self.lines

    def _header(self, *, array: bool) -> Path:
        start = self.pos
        path: Path = ()
        parts = self._dotted()
        for depth, part in enumerate(parts, start=1):
            path = (*path, part)
            if array and depth == len(parts):
                self.counts[path] = self.counts.get(path, 0) + 1
            self._note(path, start)
            if path in self.counts:
                path = (*path, self.counts[path] - 1)
                self._note(path, start)
        self._eat("]]" if array else "]")
        return path

    def _pair(self, table: Path) -> None:
        start = self.pos
        path = table
        for part in self._dotted():
            path = (*path, part)
            self._note(path, start)
        self._eat("=")
        self._skip(_SPACE)
        self._value(path)

    def _value(self, path: Path) -> None:
        if self._eat("["):
            self._items(path, "]")
        elif self._eat("{"):
            self._items(path, "}")
        elif not self._skip(_STRING):
            self._skip(_SCALAR)

    def _items(self, path: Path, closing: str) -> None:
        index = 0
        self._skip(_BLANK)
        while self.pos < len(self.text) and not self._eat(closing):
            if closing == "}":
                self._pair(path)
            else:
                self._note((*path, index), self.pos)
                self._value((*path, index))
            index += 1
            self._skip(_BLANK)
            self._eat(",")
            self._skip(_BLANK)

    def _dotted(self) -> list[str]:
        parts: list[str] = []
        while not parts or self._eat("."):
            self._skip(_SPACE)
            token = self._skip(_KEY)
            quoted = token[:1] in {'"', "'"}
            parts.append(tomllib.loads(f"key = {token}")["key"] if quoted else token)
            self._skip(_SPACE)
        return parts

    def _note(self, path: Path, pos: int) -> None:
        self.lines.setdefault(path, self.text.count("\n", 0, pos) + 1)

    def _skip(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self.text, self.pos)
        if match is None:
            return ""
        self.pos = match.end()
        return match[0]

    def _eat(self, token: str) -> bool:
        matches = self.text.startswith(token, self.pos)
        if matches:
            self.pos += len(token)
        return matches

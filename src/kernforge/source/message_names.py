# SPDX-License-Identifier: Apache-2.0
"""What compilers write about generated files, in the words of the sources that the user gave.

A source that is given as text is compiled as a part of a generated file, below headers that are put
before it. Its user knows neither that file nor its lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

GENERATED = "generated"
"""Label of lines that are not of a source of the user."""
# The margin of GCC and Clang before a line of source that they show.
_MARGIN = re.compile(r"^(?P<before> *)(?P<line>\d+)(?P<after> \|.*)$", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """Lines of a generated file that are one source of the user.

    Attributes:
        first: number of its first line in the file, from 1.
    """

    label: str
    first: int
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageNames:
    """Names of sources, for messages.

    Attributes:
        files: the user's files, as an action's directory has them: without the leading slash.
        parts: of each generated file, by its name; what is in none was generated.
    """

    files: tuple[str, ...] = ()
    parts: Mapping[str, tuple[Part, ...]]

    def restore(self, text: str) -> str:
        """What a compiler wrote, with the user's files and sources in the place of ours."""
        for path in self.files:
            text = re.sub(rf"(?<![\w/.-]){re.escape(path)}", f"/{path}", text)
        if not self.parts:
            return text
        names = "|".join(map(re.escape, self.parts))
        place = re.compile(rf"(?<![\w/.-])({names})(?:(:)(\d+)|(\()(\d+)(?=\)))?")
        shown: tuple[Part, ...] = ()
        lines = []
        for line in text.splitlines():
            if match := place.match(line):
                shown = self.parts[match[1]]
            elif not line.startswith(" "):
                shown = ()
            if shown and (margin := _MARGIN.match(line)):
                lines.append(_renumbered(margin, shown))
            else:
                lines.append(place.sub(self._restored, line))
        return "\n".join(lines)

    def title(self, name: str) -> str:
        """What the user calls a generated file; the name itself of any other."""
        parts = self.parts.get(name, ())
        return parts[0].label.partition("[")[0] if parts else name

    def _restored(self, match: re.Match[str]) -> str:
        number = int(match[3] or match[5] or 0)
        if not number:
            return self.title(match[1])
        label, line = _in_part(self.parts[match[1]], number)
        return f"{label}{match[2] or match[4]}{line}"


def _in_part(parts: tuple[Part, ...], line: int) -> tuple[str, int]:
    """A source and its line, by the line of the generated file."""
    for part in parts:
        if part.first <= line < part.first + part.count:
            return part.label, line - part.first + 1
    return GENERATED, line


def _renumbered(margin: re.Match[str], parts: tuple[Part, ...]) -> str:
    _, line = _in_part(parts, int(margin["line"]))
    width = len(margin["before"]) + len(margin["line"])
    return f"{line:>{width}}{margin['after']}"

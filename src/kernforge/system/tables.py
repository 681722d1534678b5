# SPDX-License-Identifier: Apache-2.0
"""Text for people: tables, numbers of bytes, pages of the documentation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

_MB = 1_000_000


def size(count: int) -> str:
    """A number of bytes as text, such as ``12 MB``; empty for 0."""
    if not count:
        return ""
    if count < _MB:
        return f"{max(1, round(count / 1e3))} kB"
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{count / _MB:.0f} MB"  # noqa: PLR2004


def counted(count: int, noun: str, plural: str = "") -> str:
    """A number of things as text, such as ``1 file`` or ``2 files``.

    Args:
        plural: what several are called; the noun with an s by default.
    """
    return f"{count} {noun if count == 1 else plural or noun + 's'}"


def first_names(names: Iterable[str], most: int = 5) -> str:
    """The first names in their order, with commas, and how many more there are."""
    shown = sorted(names)
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")


def page(path: str) -> str:
    """The file of a page, such as ``how-to/author/use-the-jit``, in the repository."""
    return f"docs/{path}.md"


def table(rows: Iterable[Sequence[str]], *, head: Sequence[str] = ()) -> str:
    """Rows as text, in columns as wide as their widest cell."""
    cells = [list(head), *map(list, rows)] if head else list(map(list, rows))
    if not cells:
        return ""
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    lines = ("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells)
    return "\n".join(line.rstrip() for line in lines)

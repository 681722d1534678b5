# SPDX-License-Identifier: Apache-2.0
"""Versions of two numbers: of CUDA, torch, tvm-ffi, and compute capabilities."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple, Self

_LEADING = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_VERSION = re.compile(r"\+?([0-9]+)\.\+?([0-9]+)")
_WORD = 2**64


class Version2(NamedTuple):
    """A version of two numbers, such as ``12.8``, compared by numbers: 2.10 is after 2.9."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a version such as ``"12.8"``.

        As in ``kernels`` 0.17.2, surrounding blanks, a plus sign and leading zeros are allowed:
        ``"12.08"`` is 12.8.

        Raises:
            ValueError: the text is not two whole numbers of at most 64 bits with a dot between.
        """
        match = _VERSION.fullmatch(text.strip())
        if match is None or max(int(match[1]), int(match[2])) >= _WORD:
            raise ValueError('expected a version of two numbers, as in "12.8"')
        return cls(int(match[1]), int(match[2]))

    @classmethod
    def leading(cls, text: str) -> Self | None:
        """The first two numbers of a release such as ``"2.13.0+cu130"``; None if it has none.

        A missing second number is 0.
        """
        match = _LEADING.match(text)
        return cls(int(match[1]), int(match[2] or 0)) if match else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Names such as ``7.5``, ``10.0f`` and ``9.0+PTX`` with their numbers in ascending order.

    The metadata has them sorted as text, which is the hub's format: ``10.0`` before ``7.5``.
    """
    return tuple(sorted(names, key=_by_numbers))


def _by_numbers(name: str) -> tuple[tuple[bool, int, str], ...]:
    parts = re.findall(r"\d+|\D+", name)
    return tuple((False, int(p), "") if p.isdigit() else (True, 0, p) for p in parts)

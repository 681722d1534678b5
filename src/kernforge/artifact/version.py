# SPDX-License-Identifier: Apache-2.0
"""Versions of two numbers: of CUDA, torch, tvm-ffi, and compute capabilities."""

from __future__ import annotations

import re
from typing import NamedTuple, Self

_LEADING = re.compile(r"([0-9]+)(?:\.([0-9]+))?")
_VERSION = re.compile(r"\+?([0-9]+)\.\+?([0-9]+)")
_WORD = 2**64


class Version2(NamedTuple):
    """A version of two numbers, as in ``12.8``; it compares by number, so 2.10 is after 2.9."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read ``"12.8"``.

        As ``kernels`` 0.17.2 does, surrounding blanks, a plus sign and leading zeros are let pass:
        ``"12.08"`` is 12.8.

        Raises:
            ValueError: not exactly two whole numbers of 64 bits with a dot between.
        """
        found = _VERSION.fullmatch(text.strip())
        if found is None or max(int(found[1]), int(found[2])) >= _WORD:
            raise ValueError('expected a version of two numbers, as in "12.8"')
        return cls(int(found[1]), int(found[2]))

    @classmethod
    def leading(cls, text: str) -> Self | None:
        """The first two numbers of a release, as in ``"2.13.0+cu130"``; None where it has none.

        A second number that is left out is 0.
        """
        found = _LEADING.match(text)
        return cls(int(found[1]), int(found[2] or 0)) if found else None

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

# SPDX-License-Identifier: Apache-2.0
"""The command line of the hub's client, ``kernels``, as one of ours.

Where kernforge stands in for the client, programs and scripts call ``kernels`` as they did. Most
words are the same in both; what is not is translated here. The page "Switch from kernels" has the
table, and a test compares it with the installed client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Options of `kernels benchmark` that say how often to call: kernforge calls until it is certain. A
# picture is an SVG, which needs no second file of pixels.
_WITH_VALUE = ("--iterations", "--warmup")
_ALONE = ("--rasterized",)


def translated(argv: Sequence[str]) -> list[str]:
    """The arguments of ``kernels`` as arguments of ``kernforge``.

    Args:
        argv: without the name of the program.
    """
    match argv:
        case ["verify-signature", *rest]:
            return ["verify", *_verified(rest)]
        case ["benchmark", *rest]:
            return ["benchmark", *_measured(rest)]
        case _:
            return list(argv)


def _verified(words: Sequence[str]) -> Iterator[str]:
    """Repository and version of ``kernels verify-signature``, which verifies one variant."""
    named = 0
    for word in words:
        named += not word.startswith("-")
        if not word.startswith("-") and named == len(("repository", "version")):
            yield "--version"
        if word != "--all-variants":  # they are all verified anyhow
            yield word


def _measured(words: Sequence[str]) -> Iterator[str]:
    """The options of ``kernels benchmark`` that count here too."""
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif word not in _ALONE and not word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            yield word

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
            # kernforge verifies all variants anyhow.
            given = [word for word in rest if word != "--all-variants"]
            named = [word for word in given if not word.startswith("-")]
            options = [word for word in given if word.startswith("-")]
            version = ["--version", *named[1:2]] if len(named) > 1 else []
            return ["verify", *named[:1], *version, *named[2:], *options]
        case ["benchmark", *rest]:
            return ["benchmark", *_measured(rest)]
        case _:
            return list(argv)


def _measured(words: Sequence[str]) -> Iterator[str]:
    """The options of ``kernels benchmark`` that count here too."""
    left = iter(words)
    for word in left:
        if word in _WITH_VALUE:
            next(left, None)
        elif word not in _ALONE and not word.startswith(tuple(f"{name}=" for name in _WITH_VALUE)):
            yield word

# SPDX-License-Identifier: Apache-2.0
"""Translate a command line of ``kernels``, the hub's client, to one of kernforge.

The page "Switch from kernels" has the table.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

_COMMANDS = {
    "download": ("get",),
    "variants": ("info",),
    "verify-signature": ("verify",),
    "versions": ("info", "--versions"),
}
_OPTIONS = {
    "--all-variants": ("--variant", "*"),
    "--branch": ("--version",),
    "--filter-no-digest": ("--allow-no-digest",),
    "--filter-unsigned": ("--allow-unsigned",),
    "--only-compatible": (),  # they come first
    "--revision": ("--version",),
}


def translated(argv: Sequence[str]) -> list[str]:
    """The arguments of ``kernels`` as arguments of ``kernforge``, without the program's name."""
    # A value after "=" becomes a word of its own.
    parts = (word.split("=", 1) if word.startswith("--") else [word] for word in argv)
    command, *words = itertools.chain.from_iterable(parts) if argv else [""]
    if command == "variants" and "--all-versions" in words:
        command = "versions"
        words.remove("--all-versions")
    if command == "verify-signature":
        named = [index for index, word in enumerate(words) if not word.startswith("-")]
        if named[1:]:
            words.insert(named[1], "--version")
    words_here = (new for word in words for new in _OPTIONS.get(word, (word,)))
    return [*_COMMANDS.get(command, (command,) if command else ()), *words_here]

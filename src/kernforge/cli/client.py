# SPDX-License-Identifier: Apache-2.0
"""The command line of the hub's client, ``kernels``, as one of ours.

Where kernforge stands in for the client, programs and scripts call ``kernels`` as they did. Most
words are the same in both; what is not is translated here. The page "Switch from kernels" has the
table, and a test compares it with the installed client.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Sequence

_COMMANDS = {
    "benchmark": ("bench",),
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
    "--output": ("--out",),
    "--revision": ("--version",),
}


def translated(argv: Sequence[str]) -> list[str]:
    """The arguments of ``kernels`` as arguments of ``kernforge``.

    Args:
        argv: without the name of the program.
    """
    # A value after "=" becomes a word of its own.
    parts = (word.split("=", 1) if word.startswith("--") else [word] for word in argv)
    command, *words = itertools.chain.from_iterable(parts) if argv else [""]
    if command == "variants" and "--all-versions" in words:
        command = "versions"
        words.remove("--all-versions")
    if command == "variants" and "latest" in words:
        newest = words.index("latest")
        del words[newest - 1 : newest + 1]
    if command == "verify-signature":
        named = [index for index, word in enumerate(words) if not word.startswith("-")]
        if named[1:]:
            words.insert(named[1], "--version")
    if command == "benchmark":
        words = _measured(words)
    ours = (new for word in words for new in _OPTIONS.get(word, (word,)))
    return [*_COMMANDS.get(command, (command,) if command else ()), *ours]


def _measured(words: list[str]) -> list[str]:
    """The options of ``kernels benchmark``: the version becomes a part of the name.

    How often to call is left out: kernforge calls until it is certain.
    """
    theirs = argparse.ArgumentParser(prog="kernels benchmark", allow_abbrev=False)
    theirs.add_argument("repo")
    theirs.add_argument("--rasterized", action="store_true")
    for name in ("--branch", "--version", "--visual", "--iterations", "--warmup"):
        theirs.add_argument(name)
    given, others = theirs.parse_known_args(words)
    revision = f"v{given.version}" if given.version else given.branch
    visual = f"{given.visual}{'.png' if given.rasterized else '.svg'}"
    return [
        f"{given.repo}@{revision}" if revision else given.repo,
        *(["--visual", visual] if given.visual else []),
        *others,
    ]

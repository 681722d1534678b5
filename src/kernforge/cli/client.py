# SPDX-License-Identifier: Apache-2.0
"""The command line of the hub's client, ``kernels``, as one of ours.

Where kernforge stands in for the client, programs and scripts call ``kernels`` as they did. Most
words are the same in both; what is not is translated here. The page "Switch from kernels" has the
table, and a test compares it with the installed client.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence


def translated(argv: Sequence[str]) -> list[str]:
    """The arguments of ``kernels`` as arguments of ``kernforge``.

    Args:
        argv: without the name of the program.
    """
    match argv:
        case ["verify-signature", *rest]:
            return ["verify", *_verified(rest)]
        case ["benchmark", *rest]:
            return ["bench", *_measured(rest)]
        case ["variants", *rest] if "--all-versions" in rest:
            dropped = {"--all-versions", "--only-compatible"}
            return ["info", "--versions", *(word for word in rest if word not in dropped)]
        case ["versions", *rest]:
            return ["info", "--versions", *rest]
        case ["download", *rest]:
            return ["get", *rest]
        case ["variants", *rest]:
            return ["info", *_newest(rest)]
        case _:
            return list(argv)


def _newest(words: Sequence[str]) -> Iterator[str]:
    """The options of ``kernels variants``, without the word for the newest version."""
    theirs = argparse.ArgumentParser(prog="kernels variants", allow_abbrev=False)
    theirs.add_argument("--version")
    given, others = theirs.parse_known_args(words)
    if given.version not in {None, "latest"}:
        yield from ("--version", given.version)
    yield from others


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
    """The options of ``kernels benchmark``: the version becomes a part of the name.

    How often to call is left out: kernforge calls until it is certain.
    """
    theirs = argparse.ArgumentParser(prog="kernels benchmark", allow_abbrev=False)
    theirs.add_argument("repo")
    theirs.add_argument("--rasterized", action="store_true")
    for name in ("--branch", "--version", "--output", "--visual", "--iterations", "--warmup"):
        theirs.add_argument(name)
    given, others = theirs.parse_known_args(words)
    revision = f"v{given.version}" if given.version else given.branch
    yield f"{given.repo}@{revision}" if revision else given.repo
    if given.output:
        yield from ("--out", given.output)
    if given.visual:
        yield from ("--visual", f"{given.visual}{'.png' if given.rasterized else '.svg'}")
    yield from others

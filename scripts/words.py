# SPDX-License-Identifier: Apache-2.0
"""Find phrases that the field has a word for, and fail if there is one: ``make lint``.

The package and the documents are searched. ruff holds that the first line of a docstring is one
line of at most 100 characters (D205, E501).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
SEARCHED = ("src/kernforge/**/*.py", "docs/**/*.md", "kernels/*/*.md", "*.md")
WORDS = {
    "(of|by|from|a|an) strangers?('s)?": "untrusted, unknown publisher",
    "someone( else)?": "an attacker, another user",
    "means? harm": "hostile, untrusted",
    "as ever": "unchanged",
    "(is|are) let pass": "is accepted",
    "that which": "the noun itself",
    "who (asks|builds|loads|publishes)": "the caller, author, user, publisher",
    "(had|got|gotten) from": "fetched from",
    "another way round": "reversed",
    "goes bad": "fails, is damaged",
    "whoever|nobody|somebody": "the host, the process, the user, the operator",
    "cannot be had": "is unavailable",
}
"""Phrases as regular expressions, and the words to use in their place."""


def main() -> int:
    """Print each phrase with its place and its replacement; returns the exit code."""
    failed = False
    for path in sorted(path for pattern in SEARCHED for path in ROOT.glob(pattern)):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for phrase, better in WORDS.items():
                if match := re.search(rf"\b(?:{phrase})\b", line, re.IGNORECASE):
                    place = path.relative_to(ROOT)
                    print(f"{place}:{number}: {match[0]!r}: write {better}")
                    failed = True
    return failed


if __name__ == "__main__":
    sys.exit(main())

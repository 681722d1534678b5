# SPDX-License-Identifier: Apache-2.0
"""The page on coming from ``kernels`` names every command and option of its command line."""

import argparse
import re
from pathlib import Path

import pytest
from kernels.cli import main

from kernforge.cli import main as cli_main

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "user" / "switch-from-kernels.md"
ROW = re.compile(r"\| `(kernels|kernel-builder) ([a-z-]+)([^|]*)\| ([^|]*)\|([^|]*)\|")


def rows():
    """Program, command, the options named beside it, what takes their place, and the words."""
    for match in ROW.finditer(PAGE.read_text()):
        program, command, rest, ours, words = match.groups()
        yield program, command, set(re.findall(r"--[a-z-]+", rest)), ours.strip(), words.strip()


def grammar(parser):
    """Each command's long options."""
    (verbs,) = (a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    return {
        name: {o for a in verb._actions for o in a.option_strings if o.startswith("--")}
        for name, verb in verbs.choices.items()
    }


@pytest.fixture
def theirs(monkeypatch):
    """The grammar that the client makes inside of its main function."""
    seen = []

    def parse(self, *_args, **_options):
        seen.append(self)
        raise SystemExit(0)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse)
    with pytest.raises(SystemExit):
        main()
    return grammar(seen[0])


def test_every_command_and_option_of_the_client_is_there(theirs):
    named = {}
    for program, command, options, *_ in rows():
        if program == "kernels":
            named.setdefault(command, set()).update(options)
    assert named == {name: options - {"--help"} for name, options in theirs.items()}


def test_what_takes_their_place_exists():
    ours = grammar(cli_main.parser())
    found = list(rows())
    assert len(found) > 30
    for program, command, _, place, words in found:
        if place == "none":
            assert words, f"{program} {command}: a reason is missing"
            continue
        match = re.fullmatch(r"`kernforge ([a-z-]+)((?: --[a-z-]+)*)`", place)
        assert match, place
        assert set(match[2].split()) <= ours[match[1]], place

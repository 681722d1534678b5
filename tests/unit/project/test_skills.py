# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: what it writes where, and that the commands of its pages exist."""

import argparse
import json
import re
import shlex
from pathlib import Path

import pytest
from support.commands import call

from kernforge.cli import grammar, main
from kernforge.errors import KernforgeError
from kernforge.project import skills

TEXTS = skills.texts()
# Shown to say that they do not exist, or what they would be.
NO_COMMANDS = ("kernforge COMMAND", "kernforge[")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def read(words):
    """Parse a command line."""
    top = main.parser()
    grammar.read(top, words, argparse.Namespace(grammar=top))


def commands(text):
    """The commands of a page, and whether each is whole: one between backticks may lack arguments."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ "), True
    rest = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from ((" ".join(code.split()), False) for code in re.findall(r"`([^`]+)`", rest))


def test_the_first_page_has_a_name_and_a_description():
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n", TEXTS["SKILL.md"])
    assert head[1] == skills.NAME
    assert 100 < len(head[2]) <= 1024


@pytest.mark.parametrize("path", sorted(TEXTS))
def test_links_lead_to_pages_of_the_skill_or_to_the_web(path):
    text = re.sub(r"^ *```.*?^ *```$", "", TEXTS[path], flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
        if "://" not in target:
            assert str(Path(path).parent / target) in TEXTS, target


@pytest.mark.parametrize("path", sorted(TEXTS))
def test_every_command_exists_with_its_options(path):
    wrong = []
    for line, whole in commands(TEXTS[path]):
        if not line.startswith("kernforge ") or line.startswith(NO_COMMANDS):
            continue
        words = shlex.split(line, comments=True)
        for end in ("|", "&", "&&", ">", ";"):
            words = words[: words.index(end)] if end in words else words
        try:
            read(words[1:])
        except (KernforgeError, SystemExit) as error:
            if whole or "arguments are required" not in str(error):
                wrong.append(f"{line}: {error}")
    assert wrong == []


def test_an_unknown_option_would_be_found():
    with pytest.raises(KernforgeError, match="--no-such"):
        read(["build", "--no-such"])


def test_it_is_written_where_assistants_look(here, capsys):
    assert call("skills", "--json") == 0
    assert json.loads(capsys.readouterr().out)["directories"] == [".agents/skills/kernforge"]
    (here / ".claude").mkdir()
    assert call("skills", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["directories"] == [".agents/skills/kernforge", ".claude/skills/kernforge"]
    for directory in told["directories"]:
        found = {p.relative_to(directory).as_posix(): p for p in Path(directory).rglob("*.md")}
        assert {path: p.read_text() for path, p in found.items()} == TEXTS


def test_it_is_written_where_the_user_says(here):
    assert call("skills", "--global", "--for", "opencode", "--for", "claude") == 0
    home = here / "home"
    assert (home / ".config/opencode/skills/kernforge/SKILL.md").is_file()
    assert (home / ".claude/skills/kernforge/SKILL.md").is_file()
    assert call("skills", "--dest", "mine") == 0
    assert sorted(path.name for path in here.iterdir()) == ["home", "mine"]


def test_an_earlier_version_is_replaced_as_a_whole(here):
    target = skills.write(here / "skills")
    (target / "references" / "gone.md").write_text("a page of an earlier version")
    (target / "SKILL.md").write_text("---\nname: kernforge\ndescription: earlier\n---\n")
    skills.write(here / "skills")
    assert (target / "SKILL.md").read_text() == TEXTS["SKILL.md"]
    assert not (target / "references" / "gone.md").exists()


def test_what_somebody_else_wrote_is_left_alone(here, capsys):
    theirs = here / ".agents/skills/kernforge"
    theirs.mkdir(parents=True)
    (theirs / "SKILL.md").write_text("---\nname: mine\n---\n")
    assert call("skills") == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert (theirs / "SKILL.md").read_text() == "---\nname: mine\n---\n"
    assert call("skills", "--force") == 0
    assert (theirs / "SKILL.md").read_text() == TEXTS["SKILL.md"]

# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: what it writes where, and that the commands of its pages exist."""

import argparse
import json
import posixpath
import re
import shlex
import zipfile
from pathlib import Path

import pytest
from support.commands import call

from kernforge.cli import parser
from kernforge.errors import KernforgeError
from kernforge.project import skills

ROOT = Path(__file__).parents[3]
TEXTS = skills.texts()
# Shown to say that they do not exist, or what they would be.
NO_COMMANDS = ("kernforge COMMAND", "kernforge ...", "kernforge[")


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def read(words):
    """Parse a command line."""
    parser.read(words, argparse.Namespace())


def commands(text):
    """Commands of a page, and whether each is whole: one in backticks may lack arguments."""
    for block in re.findall(r"^```console\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.strip().removeprefix("$ "), True
    rest = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.DOTALL | re.MULTILINE)
    yield from ((" ".join(code.split()), False) for code in re.findall(r"`([^`]+)`", rest))


def test_the_first_page_has_a_name_and_a_description():
    head = re.match(r"---\nname: (\S+)\ndescription: (.+)\n", TEXTS["SKILL.md"])
    assert head[1] == skills.NAME
    assert 100 < len(head[2]) <= 1024


def test_every_link_of_the_skill_resolves():
    assert len([path for path in TEXTS if path.startswith("references/")]) > 10
    for path, page in TEXTS.items():
        text = re.sub(r"^ *```.*?^ *```$", "", page, flags=re.DOTALL | re.MULTILINE)
        for target in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text):
            if "://" not in target:
                there = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
                assert there in TEXTS, f"{path} links to {target}"


def test_every_command_of_the_documentation_exists_with_its_options():
    wrong = []
    others = [*ROOT.glob("*.md"), *(ROOT / "src/kernforge/templates").rglob("*.md")]
    for path, text in {**TEXTS, **{str(page): page.read_text() for page in others}}.items():
        for line, whole in commands(text):
            if not line.startswith("kernforge ") or line.startswith(NO_COMMANDS):
                continue
            words = shlex.split(re.sub(r"{{ \w+ }}", "me/x", line), comments=True)
            for end in ("|", "&", "&&", ">", ";"):
                words = words[: words.index(end)] if end in words else words
            try:
                read(words[1:])
            except (KernforgeError, SystemExit) as error:
                short = ("arguments are required", "expected one", "expected at least one")
                if error.args != (0,) and (whole or not any(text in str(error) for text in short)):
                    wrong.append(f"{path}: {line}: {error}")
    assert not wrong, "\n".join(wrong)


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


def test_the_wheel_has_the_pages(tmp_path):
    building = pytest.importorskip("hatchling.builders.wheel")
    builder = building.WheelBuilder(str(ROOT))
    (wheel,) = builder.build(directory=str(tmp_path), versions=["standard"])
    where = "kernforge/templates/skills/kernforge/"
    with zipfile.ZipFile(wheel) as archive:
        names = {name.removeprefix(where) for name in archive.namelist() if where in name}
    assert names == set(TEXTS)


def test_it_is_written_where_the_user_says(here):
    assert call("skills", "--global", "--for", "opencode", "--for", "claude") == 0
    home = here / "home"
    assert (home / ".config/opencode/skills/kernforge/SKILL.md").is_file()
    assert (home / ".claude/skills/kernforge/SKILL.md").is_file()
    assert [path.name for path in here.iterdir()] == ["home"]


def test_an_earlier_version_is_replaced(here, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(skills, "texts", lambda: {"SKILL.md": "earlier", "gone.md": "a page"})
        target = skills.write(here / "skills")
    skills.write(here / "skills")
    assert (target / "SKILL.md").read_text() == TEXTS["SKILL.md"]
    assert not (target / "gone.md").exists()


@pytest.mark.parametrize("edited", [False, True])
def test_a_foreign_or_edited_skill_is_not_replaced(here, capsys, edited):
    if edited:
        assert call("skills") == 0
    theirs = here / ".agents/skills/kernforge"
    theirs.mkdir(parents=True, exist_ok=True)
    (theirs / "mine.md").write_text("a rule of the project")
    before = {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()}
    assert call("skills") == 2
    assert "was modified, or is not from kernforge" in capsys.readouterr().err
    assert {path: path.read_bytes() for path in theirs.rglob("*") if path.is_file()} == before


def test_nothing_is_written_through_a_link(here, monkeypatch):
    (here / "elsewhere").mkdir()
    skill = here / ".agents/skills/kernforge"
    skill.mkdir(parents=True)
    (skill / "references").symlink_to(here / "elsewhere")
    assert call("skills") == 2
    assert list((here / "elsewhere").iterdir()) == []
    (here / "mine").mkdir()
    (here / ".claude/skills").mkdir(parents=True)
    (here / ".claude/skills/kernforge").symlink_to(here / "mine")
    assert call("skills", "--for", "claude") == 2
    assert list((here / "mine").iterdir()) == []
    (here / "project").mkdir()
    monkeypatch.chdir(here / "project")
    Path(".opencode").symlink_to(here / "mine")
    assert call("skills", "--for", "opencode") == 2
    assert list((here / "mine").iterdir()) == []

# SPDX-License-Identifier: Apache-2.0
"""The shells themselves read the scripts; one that is not installed is skipped."""

import json
import shutil
import subprocess

import pytest
from support.commands import call

from kernforge.cli.parser import SHELLS
from kernforge.cli.table import COMMANDS

pytest.importorskip("shtab")
# What each shell offers for a line; the last word is the one being completed.
BASH = """
source "$1"; shift
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
function=$(complete -p kernforge | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function" kernforge "${@: -1}" "${@: -2:1}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
FISH = 'source $argv[1]; complete -C (string join " " -- $argv[2..-1])'


def shell(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def offered(name, file, *words):
    argv = ["-c", BASH, name] if name == "bash" else ["-c", FISH]
    done = subprocess.run(
        [shell(name), *argv, str(file), "kernforge", *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.stderr
    return {line.split("\t")[0].strip() for line in done.stdout.splitlines()}


@pytest.fixture(params=SHELLS)
def name(request):
    return request.param


@pytest.fixture
def file(tmp_path, name, capsys):
    assert call("--print-completion", name, "--json") == 0
    path = tmp_path / f"completion.{name}"
    path.write_text(json.loads(capsys.readouterr().out)["script"])
    return path


def test_a_shell_reads_the_script_of_all_commands(name, file):
    text = file.read_text()
    assert [verb for verb in COMMANDS if verb not in text] == []
    done = subprocess.run([shell(name), "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["bash", "fish"])
def test_a_command_an_option_and_a_file_are_completed(name, file, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-build").mkdir()
    assert offered(name, file, "wh") == {"wheel"}
    assert "--as-version" in offered(name, file, "wheel", "--as")
    assert "zsh" in offered(name, file, "--print-completion", "z")
    places = offered(name, file, "wheel", "--out", "my")
    assert {place.rstrip("/") for place in places} == {"my-build"}

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


def shell(name):
    path = shutil.which(name)
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


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
    assert "as-version" in text
    done = subprocess.run([shell(name), "-n", file], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")

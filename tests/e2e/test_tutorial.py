# SPDX-License-Identifier: Apache-2.0
"""The tutorial's commands, run as they stand."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.native, pytest.mark.torch]

TUTORIAL = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"<!-- run -->\n```(\w+)\n(.*?)```", re.DOTALL)


def test_every_command_of_the_tutorial_works(tmp_path, kept_home):
    env = {
        **os.environ,
        "KERNFORGE_HOME": str(kept_home),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    here = tmp_path
    said = ""

    def run(argv):
        nonlocal said
        done = subprocess.run(argv, cwd=here, env=env, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{argv}\n{done.stdout}{done.stderr}"
        said = done.stdout

    blocks = BLOCK.findall(TUTORIAL.read_text())
    assert len(blocks) == 7
    for language, text in blocks:
        if language == "python":
            run([sys.executable, "-c", text])
            continue
        for line in text.splitlines():
            words = shlex.split(line.removeprefix("$ "))
            if words[0] == "cd":
                here /= words[1]
            elif words[0] != "pip":  # this environment is already set up
                run(words)
    assert said == "tensor([0., 0., 2.])\n"

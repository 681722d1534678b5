# SPDX-License-Identifier: Apache-2.0
"""An interrupt ends a command at any time, after its cleanup."""

import os
import signal
import subprocess
import sys

import pytest

# Longer than any of these tests takes.
WAIT_S = 60


def interrupted_at(tmp_path, module, answer):
    """Start a command that does something when a module is imported."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys, time\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n{answer}"
        "sys.meta_path.insert(0, Finder())\n"
    )
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    argv = [sys.executable, "-m", "kernforge", "search", "--local"]
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("module", ["kernforge.cli.main", "argparse", "kernforge.audit.describe"])
def test_an_interrupt_is_130_and_no_traceback(tmp_path, module, number):
    answer = f"            os.kill(os.getpid(), {int(number)})\n            time.sleep({WAIT_S})\n"
    done = interrupted_at(tmp_path, module, answer)
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_a_second_interrupt_ends_a_command_at_once(tmp_path):
    swallowed = (
        "            for _ in range(2):\n"
        "                try:\n"
        "                    os.kill(os.getpid(), signal.SIGINT)\n"
        f"                    time.sleep({WAIT_S})\n"
        "                except KeyboardInterrupt:\n"
        "                    pass\n"
    )
    done = interrupted_at(tmp_path, "kernforge.cli.parser", swallowed)
    assert (done.returncode, done.stdout) == (-signal.SIGINT, "")

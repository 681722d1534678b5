# SPDX-License-Identifier: Apache-2.0
"""What a test starts dies with it."""

import signal
import sys
from pathlib import Path
from subprocess import PIPE

import psutil
import pytest
from support import processes

SLEEPS = (
    "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
)
STARTS = """
import sys
from support import processes
print(processes.start(["sleep", "600"]).pid, flush=True)
sys.stdin.read()
"""


def test_a_failed_block_kills_what_its_process_started():
    def fail():
        with processes.start([sys.executable, "-c", SLEEPS]) as process:
            assert process.pid in processes.children()
            while not (below := psutil.Process(process.pid).children()):
                pass
            started.extend(below)
            raise ValueError

    started = []
    with pytest.raises(ValueError, match=r"^$"):
        fail()
    assert psutil.wait_procs(started, timeout=60)[1] == []


def test_a_killed_pytest_leaves_nothing(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(Path(processes.__file__).parents[1]))
    with processes.start([sys.executable, "-c", STARTS], stdin=PIPE, stdout=PIPE) as starter:
        sleeper = psutil.Process(int(starter.stdout.readline()))
        starter.send_signal(signal.SIGKILL)
    assert psutil.wait_procs([sleeper], timeout=60)[1] == []

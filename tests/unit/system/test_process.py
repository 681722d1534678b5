# SPDX-License-Identifier: Apache-2.0

import os
import resource
import signal
import subprocess
import sys
import threading
import time

import pytest

from kernforge.system import process
from kernforge.system.process import Command


def test_a_program_gets_exactly_the_environment_that_is_named():
    done = process.run(
        Command(argv=(sys.executable, "-c", "import os; print(*os.environ)"), env={"A": "1"})
    )
    assert set(done.stdout.split()) - {"LC_CTYPE"} == {"A"}


def test_how_it_ended_is_reported(tmp_path):
    done = process.run(Command(argv=("sh", "-c", "pwd; echo oops >&2; exit 3"), cwd=tmp_path))
    assert (done.returncode, done.stdout.strip(), done.stderr) == (3, str(tmp_path), "oops\n")


def test_the_whole_group_is_killed_when_time_runs_out():
    start = time.monotonic()
    done = process.run(Command(argv=("sh", "-c", "sleep 600 & sleep 600"), timeout=0.2))
    assert done.timed_out
    assert time.monotonic() - start < 300


def test_kill_all_ends_what_another_thread_started():
    done = []
    thread = threading.Thread(
        target=lambda: done.append(process.run(Command(argv=("sleep", "600"))))
    )
    thread.start()
    while thread.is_alive():  # it may not have started it yet
        process.kill_all()
        thread.join(0.02)
    assert done[0].returncode == -9


RUN = 'process.run(process.Command(argv=("sh", "-c", SCRIPT)))'


def ends(group):
    """Whether a process group ends, on a machine that may be busy."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_what_a_killed_process_has_started_ends_with_it(tmp_path, number):
    """Also what the program itself has started, and not what ended before."""
    program = f"""
from kernforge.system import process
SCRIPT = "sleep 600 & sleep 1; echo $$ > started; wait"
process.run(process.Command(argv=("true",)))
{RUN}
"""
    started = tmp_path / "started"
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as killed:
        while not started.exists() or not (text := started.read_text().strip()):
            time.sleep(0.01)
        killed.send_signal(number)
    assert ends(int(text))


def test_a_program_runs_in_a_process_with_many_open_files():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2048:
        pytest.skip("this user may not open more than 1,023 files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        assert process.run(Command(argv=("sh", "-c", "echo done"), timeout=60)).stdout == "done\n"
    finally:
        for descriptor in opened:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

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


def test_a_missing_program_is_an_error_of_its_own():
    with pytest.raises(FileNotFoundError):
        process.run(Command(argv=("no-such-program",)))


def test_the_whole_group_is_killed_when_time_runs_out():
    start = time.monotonic()
    done = process.run(Command(argv=("sh", "-c", "sleep 600 & sleep 600"), timeout=0.2))
    assert done.timed_out
    assert time.monotonic() - start < 300


TIDY = "trap 'echo tidied; exit 3' TERM; echo ready; >%s; while :; do sleep 0.1; done"


def run_until_timeout(script):
    """Run a script that tidies up, until it is ready: a busy machine starts it late."""
    for timeout in (0.5, 5, 50):
        done = process.run(Command(argv=("sh", "-c", script), timeout=timeout, tidies=True))
        if "ready" in done.stdout:
            break
    return done


def test_a_program_that_tidies_up_is_asked_first(tmp_path):
    ready = tmp_path / "ready"
    done = run_until_timeout(TIDY % ready)
    assert (done.timed_out, done.returncode, done.stdout.split()) == (True, 3, ["ready", "tidied"])
    ready.unlink()
    results = []
    command = Command(argv=("sh", "-c", TIDY % ready), tidies=True)
    thread = threading.Thread(target=lambda: results.append(process.run(command)))
    thread.start()
    while not ready.exists():
        time.sleep(0.01)
    while thread.is_alive():
        process.kill_all()
        thread.join(0.02)
    assert results[0].stdout.split() == ["ready", "tidied"]


def test_one_that_does_not_end_is_killed_all_the_same(monkeypatch):
    monkeypatch.setattr(process, "_TIDY_S", 0.2)
    assert run_until_timeout("trap '' TERM; echo ready; sleep 600").returncode == -9


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
SCRIPT = "sleep 600 & echo $$ > started; wait"
process.run(process.Command(argv=("true",)))
{RUN}
"""
    started = tmp_path / "started"
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as killed:
        while not started.exists() or not (text := started.read_text().strip()):
            time.sleep(0.01)
        killed.send_signal(number)
    assert ends(int(text))


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_a_process_starts_at_the_moment_of_its_death_ends_with_it(tmp_path, when):
    """Killed between the start of a program and its return, or as soon as it has returned."""
    program = f"""
import os, pathlib, signal, subprocess, sys
from kernforge.system import process
SCRIPT = "echo $$ > started; sleep 600"
def die(*_):
    while not pathlib.Path("started").exists() or not pathlib.Path("started").read_text():
        pass
    os.kill(os.getpid(), signal.SIGKILL)
class Popen(subprocess.Popen):
    def __init__(self, argv, **options):
        super().__init__(argv, **options)
        if SCRIPT in argv and {when!r} == "before":
            die()
subprocess.Popen = Popen
if {when!r} == "after":
    process.meter.watch = die
{RUN}
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as killed:
        assert killed.wait() == -signal.SIGKILL
    assert ends(int((tmp_path / "started").read_text()))


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

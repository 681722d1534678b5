# SPDX-License-Identifier: Apache-2.0

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

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


REAPERS = {
    "ignored": "signal.signal(signal.SIGCHLD, signal.SIG_IGN)",
    "handled": "signal.signal(signal.SIGCHLD, lambda *_: os.waitpid(-1, os.WNOHANG))",
    "by a thread": "threading.Thread(target=reap, daemon=True).start()",
}


@pytest.mark.parametrize("reaper", REAPERS.values(), ids=REAPERS)
def test_the_exit_status_is_right_where_another_reaps_the_children(reaper):
    """Also in a Python without ``os.pidfd_open``, as conda's."""
    program = f"""
import os, signal, threading
from kernforge.system.process import Command, run
def reap():
    while True:
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            pass
vars(os).pop("pidfd_open", None)
{reaper}
for script in ("echo out; echo err >&2; exit 3", "kill -9 $$", "exit 0"):
    done = run(Command(argv=("sh", "-c", script)))
    print(done.returncode, done.stdout.strip(), done.stderr.strip())
print(run(Command(argv=("sleep", "600"), timeout=0.1)).timed_out)
try:
    run(Command(argv=("no-such-program",)))
except FileNotFoundError as error:
    print(error.filename)
"""
    printed = subprocess.check_output([sys.executable, "-c", program], text=True)
    assert printed.splitlines() == ["3 out err", "-9  ", "0  ", "True", "no-such-program"]


def test_a_forked_process_waits_for_no_thread_of_its_parent(tmp_path):
    """That a thread compiles: with the locks of programs, the store, the JIT and the loader."""
    program = """
import os, signal, sys, threading
from pathlib import Path
from kernforge.extension.session import PROCESS
from kernforge.loader import importer
from kernforge.store.local import Store
from kernforge.system.process import Command, _guard, meter, run
store, inside, over = Store(Path(sys.argv[1])), threading.Event(), threading.Event()
def fill(_):
    with PROCESS.lock, PROCESS.lock_for("module", "m"), importer.lock, meter._lock, _guard._lock:
        inside.set()
        over.wait()
    raise SystemExit  # so that its child makes it
threading.Thread(target=lambda: store.tree("objects", "k", fill)).start()
inside.wait()
if (child := os.fork()) == 0:
    signal.alarm(60)
    with PROCESS.lock, PROCESS.lock_for("module", "m"), importer.lock:
        run(Command(argv=("true",)))
    store.tree("objects", "k", lambda _: None)
    os._exit(7)
over.set()
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    argv = [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)]
    assert subprocess.check_output(argv, text=True) == "7\n"


def test_a_signal_is_handed_on_to_all_that_a_process_started(tmp_path):
    """As of ``kernforge pip`` to what pip builds."""
    program = """
import signal, subprocess
from kernforge.system.process import hand_on
signal.signal(signal.SIGTERM, hand_on)
try:
    subprocess.run(["sh", "-c", "sleep 600 & echo $! > started; wait"])
except KeyboardInterrupt:
    raise SystemExit(7)
"""
    started = tmp_path / "started"
    with subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path) as process_of_pip:
        while not started.exists() or not (text := started.read_text().strip()):
            time.sleep(0.01)
        process_of_pip.terminate()
    assert process_of_pip.returncode == 7
    with contextlib.suppress(FileNotFoundError):  # it ends, and may stay a zombie
        while Path(f"/proc/{text}/stat").read_text().split()[2] != "Z":
            time.sleep(0.01)


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

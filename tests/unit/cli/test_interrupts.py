# SPDX-License-Identifier: Apache-2.0
"""An interrupt ends a command at every moment, and lets it clean up."""

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time

import pytest

from kernforge.cli import interrupts

# Longer than any of these tests takes.
WAIT_S = 60


def wait():
    """An interrupt ends it."""
    time.sleep(WAIT_S)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_an_interrupt(number):
    def work():
        os.kill(os.getpid(), number)
        wait()

    with pytest.raises(KeyboardInterrupt), interrupts.raised():
        work()


def test_an_interrupt_that_a_library_swallows_comes_again():
    def work():
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            wait()
        wait()

    with pytest.raises(KeyboardInterrupt), interrupts.raised():
        work()


def test_a_signal_that_another_thread_receives_ends_a_wait():
    """As one does that comes just before the wait begins: Python's handler does not run in a wait."""

    def work():
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
            queue.SimpleQueue().get(timeout=WAIT_S)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt), interrupts.raised():
        work()
    assert time.monotonic() - start < WAIT_S, "the wait was over before"


def test_what_cleans_up_is_left_alone():
    cleaned = []

    def clean():
        end = time.monotonic() + 3 * interrupts._AGAIN_S
        while time.monotonic() < end:
            with contextlib.suppress(ValueError):
                raise ValueError
            time.sleep(0.01)
        cleaned.append(True)

    def work():
        try:
            os.kill(os.getpid(), signal.SIGINT)
            wait()
        finally:
            clean()

    with pytest.raises(KeyboardInterrupt), interrupts.raised():
        work()
    assert cleaned


def test_handlers_are_as_they_were_and_what_is_ignored_stays_so():
    before = [signal.getsignal(number) for number in interrupts._SIGNALS]
    with interrupts.raised():
        assert signal.getsignal(signal.SIGTERM) is not before[1]
    assert [signal.getsignal(number) for number in interrupts._SIGNALS] == before
    old = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with interrupts.raised():
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        signal.signal(signal.SIGINT, old)


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
    argv = [sys.executable, "-m", "kernforge", "--version"]
    env = {**os.environ, "PYTHONPATH": paths}
    return subprocess.run(argv, capture_output=True, text=True, env=env, check=False)


@pytest.mark.parametrize("module", ["kernforge.cli.main", "argparse"])
def test_an_interrupt_while_the_command_starts_leaves_no_traceback(tmp_path, module):
    done = interrupted_at(tmp_path, module, "            raise KeyboardInterrupt\n")
    assert (done.returncode, "Traceback" in done.stderr) == (130, False)


def test_an_interrupt_that_an_import_swallows_ends_the_command(tmp_path):
    swallowed = (
        "            try:\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        f"                time.sleep({WAIT_S})\n"
        "            except KeyboardInterrupt:\n"
        "                pass\n"
    )
    done = interrupted_at(tmp_path, "kernforge.cli.grammar", swallowed)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_the_early_answer_is_replaced_when_a_command_begins():
    old = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupts.end_at_once()
        assert signal.getsignal(signal.SIGINT) is interrupts._end
        with interrupts.raised():
            assert signal.getsignal(signal.SIGINT) is interrupts._raise
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        interrupts.end_at_once()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, old)

# SPDX-License-Identifier: Apache-2.0
"""Processes of tests: they hear SIGINT, and die with the test that started them."""

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import psutil

_PDEATHSIG = 1  # prctl(2)
_libc = ctypes.CDLL(None)


class _Process(subprocess.Popen):
    def __exit__(self, kind, *error):
        if kind:
            kill_trees([self.pid])
        super().__exit__(kind, *error)


def start(argv, **options) -> subprocess.Popen:
    """``subprocess.Popen`` of a program that ends with this process, however this process ends.

    A shell that runs tests in the background has SIGINT ignored, and programs inherit that.
    """
    return _Process([*map(str, argv)], preexec_fn=_prepare, **options)


def _prepare() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def listening(start) -> tuple[subprocess.Popen, int]:
    """A server that takes connections, and its port.

    Args:
        start: starts it on a port of this machine.
    """
    for _ in range(5):  # another process may take the port first
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        process = start(port)
        while process.poll() is None:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 5):
                return process, port
            time.sleep(0.02)
    raise AssertionError(f"{process.args} ended with {process.returncode}")


def children() -> frozenset[int]:
    """The processes that this process started and that run."""
    started = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(FileNotFoundError):  # the thread has ended
            started |= {int(pid) for pid in (thread / "children").read_text().split()}
    return frozenset(started)


def kill_trees(pids) -> None:
    """Kill processes with all that they started."""
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            process = psutil.Process(pid)
            # The parent first: it would start others, or take the death of one for a result.
            for each in (process, *process.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    os.kill(each.pid, signal.SIGKILL)

# SPDX-License-Identifier: Apache-2.0
"""Python programs that find torch imported: they are forked from a process that has done it.

Importing torch takes one and a half seconds of a core, more than most of what tests start does. A
program that is started here is a process of its own, with the files, environment, directory and session that
it is given, and it is killed when the process that forks ends. What it needs beside torch it
imports itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

_PROGRAM = Path(__file__).with_name("warm_main.py")
_ADDRESS = "KERNFORGE_TEST_WARM"
# Torch reads these when it is imported.
_FIXED = ("OMP_NUM_THREADS", "OMP_WAIT_POLICY")
_WORKERS = ("kernforge.bench.engine.worker", "kernforge.bench.hub.worker")


class Server:
    """The process that forks. ``close`` kills it, and it takes with it what it has started."""

    def __init__(self) -> None:
        self.address = f"kernforge-warm-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(64)
            self._process = subprocess.Popen(
                [sys.executable, str(_PROGRAM), str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                pass_fds=(listener.fileno(),),
            )

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def run(self, argv, *, env=None, cwd=None):
        """As ``subprocess.run`` with ``capture_output`` and ``text``."""
        env = {**(os.environ if env is None else env), _ADDRESS: self.address}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = Process(argv, cwd=cwd, env=env, stdout=out, stderr=err)
            try:
                code = process.wait()
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                argv,
                code,
                out.read().decode(),
                err.read().decode(),
            )


class Process:
    """What is used of ``subprocess.Popen``, for ``python ARGUMENTS`` with torch imported."""

    def __init__(
        self, argv, *, cwd=None, env=None, stdin=None, stdout, stderr, pass_fds=(),
        start_new_session=True,
    ) -> None:  # fmt: skip
        if argv[0] != sys.executable:
            raise ValueError(f"{argv[0]} is not this Python")
        env = dict(os.environ if env is None else env)
        self.args, self.returncode = argv, None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(f"\0{env[_ADDRESS]}")
        with open(os.devnull) as nothing:  # noqa: PTH123
            files = {0: nothing.fileno(), 1: stdout.fileno(), 2: stderr.fileno()}
            files |= {number: number for number in pass_fds}
            request = {
                "argv": list(map(str, argv[1:])),
                "cwd": str(cwd or Path.cwd()),
                "env": env,
                "files": list(files),
                "session": start_new_session,
            }
            socket.send_fds(
                self._connection,
                [json.dumps(request).encode()],
                list(files.values()),
            )
        self.pid = int(self._connection.recv(99))

    def poll(self):
        return self._ended(0)

    def wait(self, timeout=None):
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def kill(self):
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def _ended(self, timeout):
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            told = self._connection.recv(99)
            # It is killed with the process that forks.
            self.returncode = int(told) if told else -signal.SIGKILL
            self._connection.close()
        return self.returncode


def popen(argv, **options):
    """``subprocess.Popen``, but for those who take turns in a benchmark."""
    made = Process if argv[1] == "-m" and argv[2] in _WORKERS else subprocess.Popen
    return made(argv, **options)

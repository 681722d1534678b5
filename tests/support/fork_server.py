# SPDX-License-Identifier: Apache-2.0
"""Python programs that find torch imported: they are forked from a process that has done it.

Importing torch takes one and a half seconds of a core, more than most of what tests start does. A
program that is started here is a process of its own, with the files, environment, directory and
session that it is given; what it needs beside torch it imports itself. It ends with the fork server.
"""

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

_PROGRAM = Path(__file__).with_name("fork_server_main.py")
_ADDRESS = "KERNFORGE_TEST_FORK_SERVER"
_WORKERS = "kernforge.bench."
_Popen = subprocess.Popen


class ForkServer:
    """The process that forks."""

    def __init__(self) -> None:
        self.address = f"kernforge-fork-server-{os.getpid()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(64)
            number = listener.fileno()
            argv = [sys.executable, str(_PROGRAM), str(number)]
            self._process = _Popen(argv, stdin=subprocess.DEVNULL, pass_fds=(number,))

    def close(self) -> None:
        """Kill it, and with it all that it forked."""
        self._process.kill()
        self._process.wait()

    def fork_workers(self, patch: object) -> None:
        """While it is patched, benchmarks of this process have their workers forked."""
        patch.setenv(_ADDRESS, self.address)
        patch.setattr(subprocess, "Popen", popen)

    def run(self, argv, *, env=None, cwd=None) -> subprocess.CompletedProcess:
        """As ``subprocess.run`` with ``capture_output`` and ``text``."""
        env = {**(os.environ if env is None else env), _ADDRESS: self.address}
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = ForkedProcess(argv, cwd=cwd, env=env, stdout=out, stderr=err)
            try:
                code = process.wait()
            finally:
                process.kill()
            for stream in (out, err):
                stream.seek(0)
            return subprocess.CompletedProcess(argv, code, out.read().decode(), err.read().decode())


class ForkedProcess:
    """What is used of ``subprocess.Popen``; it leads a session and reads nothing."""

    def __init__(
        self, argv, *, stdout, stderr, cwd=None, env=None, pass_fds=(), **_stated: object
    ) -> None:
        assert argv[0] == sys.executable
        env = dict(os.environ if env is None else env)
        self.args, self.returncode = argv, None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(f"\0{env[_ADDRESS]}")
        with Path(os.devnull).open() as nothing:
            files = {0: nothing.fileno(), 1: stdout.fileno(), 2: stderr.fileno()}
            files |= {number: number for number in pass_fds}
            request = {
                "argv": list(map(str, argv[1:])),
                "cwd": str(cwd or Path.cwd()),
                "env": env,
                "files": list(files),
            }
            socket.send_fds(self._connection, [json.dumps(request).encode()], [*files.values()])
        self.pid = int(self._connection.recv(99))

    def poll(self):
        return self._ended(0)

    def wait(self, timeout=None):
        if self._ended(timeout) is None:
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode

    def kill(self) -> None:
        """Kill its session, too."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            self.wait()

    def _ended(self, timeout):
        if self.returncode is None and select.select([self._connection], [], [], timeout)[0]:
            status = self._connection.recv(99)
            # Nothing is said when the fork server was killed, and its processes with it.
            self.returncode = int(status) if status else -signal.SIGKILL
            self._connection.close()
        return self.returncode


def popen(argv, **options):
    """``subprocess.Popen``, but the workers of a benchmark are forked."""
    forked = argv[1] == "-m" and argv[2].startswith(_WORKERS)
    return (ForkedProcess if forked else _Popen)(argv, **options)

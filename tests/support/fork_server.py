# SPDX-License-Identifier: Apache-2.0
"""Python programs that find torch imported: they are forked from a process that has done it.

Importing torch takes one and a half seconds of a core, more than most of what tests start does. A
program that is started here is a process of its own, with the files, environment, directory and
session that it is given. The command ``python -m kernforge`` finds kernforge imported as well, and
the Python programs that it starts are forked, too. All of them end with who asked for them, or with
the fork server.
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
import uuid
from pathlib import Path

_HERE = Path(__file__).parent
_PROGRAM, _STAND_IN = _HERE / "fork_server_main.py", _HERE / "forked.py"
TESTED = "KERNFORGE_TEST_COUNTS"
"""Variable that the pytest of ``kernforge test`` has; see ``kernforge.testing.plugin``."""
_HEEDED = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE")
_Popen = subprocess.Popen
address = ""
"""Of the fork server that this process asks."""


class ForkServer:
    """The process that forks.

    Args:
        python: the interpreter whose packages are imported.
        env: its environment; None: that of this process.
    """

    def __init__(self, python=sys.executable, env=None) -> None:
        self.address = f"kernforge-fork-server-{uuid.uuid4()}"
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
            listener.bind(f"\0{self.address}")
            listener.listen(64)
            self._process = _Popen(
                [str(python), str(_PROGRAM), self.address, str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                env=env,
                pass_fds=(listener.fileno(),),
            )

    def close(self) -> None:
        """Kill it, and with it all that it forked."""
        self._process.kill()
        self._process.wait()

    def run(self, argv, *, env=None, cwd=None) -> subprocess.CompletedProcess:
        """As ``subprocess.run`` with ``capture_output`` and ``text``."""
        assert _may_be_forked(argv, env)
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = ForkedProcess(
                argv, cwd=cwd, env=env, stdout=out, stderr=err, server=self.address
            )
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
        self, argv, *, stdout, stderr, cwd=None, env=None, pass_fds=(), server="", **_stated: object
    ) -> None:
        assert argv[0] == sys.executable
        self.args, self.returncode = argv, None
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.connect(f"\0{server or address}")
        with Path(os.devnull).open() as nothing:
            files = {0: nothing.fileno(), 1: stdout.fileno(), 2: stderr.fileno()}
            files |= {number: number for number in pass_fds}
            request = {
                "argv": list(map(str, argv[1:])),
                "cwd": str(cwd or Path.cwd()),
                "env": dict(os.environ if env is None else env),
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
    """``subprocess.Popen``, but Python programs are forked.

    One that is talked with over pipes is stopped and continued, so it is the forked process itself.
    Of the others the caller waits for its own child: one that waits for the forked process in its
    place.
    """
    if not _is_kernforges_own(argv, options.get("env")) or not _may_be_forked(
        argv, options.get("env")
    ):
        return _Popen(argv, **options)
    if options.get("pass_fds"):
        return ForkedProcess(argv, **options)
    return _Popen([*stand_in(address), *argv[1:]], **options)


def stand_in(server: str) -> list[str]:
    """What starts a forked program as ``python`` starts one, and is a child of who starts it."""
    return [sys.executable, "-I", "-S", str(_STAND_IN), server]


def _is_kernforges_own(argv, env) -> bool:
    """Whether it is kernforge's: a module, a written program, or pytest of ``kernforge test``."""
    option = argv[1] if argv[0] == sys.executable else ""
    if option == "-m" and argv[2] == "pytest":
        return TESTED in (env or {})
    return option in ("-c", "-B") or (option == "-m" and argv[2].startswith("kernforge."))


def _may_be_forked(argv, env) -> bool:
    """Whether a program is Python's, started in the same way as the fork server."""
    option = argv[1] if argv[0] == sys.executable else "-"
    env = os.environ if env is None else env
    return (not option.startswith("-") or option in ("-m", "-c", "-B")) and all(
        env.get(name) == os.environ.get(name)
        for name in {*env, *os.environ}
        if name.startswith(("PYTHON", "OMP_")) and name not in _HEEDED
    )

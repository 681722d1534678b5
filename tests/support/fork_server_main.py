# SPDX-License-Identifier: Apache-2.0
"""The process that has torch imported and forks itself; the program of ``support.fork_server``.

Its argument is the number of a listening socket. Each connection asks for one Python program: it gets
the process id, and the status when the program has ended.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import ctypes
import fcntl
import gc
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
from pathlib import Path
from typing import Any

_PDEATHSIG = 1  # prctl(2)
_MOST_FILES = 32
_FREE = 500  # Numbers of files from here on are not asked for.


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for every connection; returns what is asked for, in the new process alone."""
    watch = selectors.DefaultSelector()
    woken, wakes = socket.socketpair()
    wakes.setblocking(False)
    woken.setblocking(False)
    signal.set_wakeup_fd(wakes.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watch.register(listener, selectors.EVENT_READ)
    watch.register(woken, selectors.EVENT_READ)
    clients: dict[int, socket.socket] = {}
    while True:
        for key, _ in watch.select():
            if key.fileobj is woken:
                woken.recv(4096)
                _reap(clients)
                continue
            client, _ = listener.accept()
            request, files = _received(client)
            pid = os.fork()
            if pid == 0:
                watch.close()
                for each in (listener, woken, wakes, client, *clients.values()):
                    each.close()
                _become(request, files)
                return request
            for number in files:
                os.close(number)
            clients[pid] = client
            client.send(str(pid).encode())


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What is asked for, and its files."""
    size = array.array("i").itemsize * _MOST_FILES
    data, extra, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(size))
    numbers = array.array("i")
    for _, _, part in extra:
        numbers.frombytes(part)
    return json.loads(data), list(numbers)


def _reap(clients: dict[int, socket.socket]) -> None:
    """Tell the status of every program that has ended."""
    while clients:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        # Who asked may have ended.
        with clients.pop(pid) as client, contextlib.suppress(OSError):
            client.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Have the files, signals, environment and place of the program."""
    _die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setsid()
    high = [fcntl.fcntl(number, fcntl.F_DUPFD_CLOEXEC, _FREE) for number in files]
    for number in files:
        os.close(number)
    for number, wanted in zip(high, request["files"], strict=True):
        os.dup2(number, wanted)
        os.close(number)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])


def _search_path() -> list[str]:
    """What PYTHONPATH says."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [str(Path(path).absolute()) for path in given if path]


_status: list[int] = []


def _leave() -> None:
    """End without a visit to each of torch's objects, which takes a second."""
    if _status:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(_status[0])


def perform(argv: list[str], installed: list[str]) -> None:
    """Do what ``python ARGV`` does.

    Args:
        argv: ``-m MODULE``, ``-c TEXT`` or a path, and the program's arguments.
        installed: the end of ``sys.path``, which no environment changes.
    """
    atexit.register(_leave)  # First, so that it runs last.
    first, *rest = argv
    place = Path.cwd() if first in ("-m", "-c") else Path(first).absolute().parent
    sys.path[:] = [str(place), *_search_path(), *installed]
    if first == "-m":
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(rest[0], main.__dict__)  # noqa: S102 - what -c is for
    else:
        sys.argv = argv
        runpy.run_path(first, run_name="__main__")


def main(listener: socket.socket) -> None:
    """Serve; in a new process, do as it is asked and end as Python does."""
    _die_with_parent()
    importlib.import_module("torch")
    installed = [path for path in sys.path[1:] if path not in _search_path()]
    gc.freeze()  # A collection would copy all that is shared.
    try:
        perform(serve(listener)["argv"], installed)
    except SystemExit as end:
        _status.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    _status.append(0)


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))

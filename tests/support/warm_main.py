# SPDX-License-Identifier: Apache-2.0
"""The process that has torch imported and forks itself; the program of ``support.warm``.

Its argument is the number of a listening socket. Each connection asks for one Python program: it gets
the process id, and the status when the program has ended.
"""

from __future__ import annotations

import array
import ctypes
import fcntl
import importlib
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import types
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
        with clients.pop(pid) as client:
            try:
                client.send(str(os.waitstatus_to_exitcode(status)).encode())
            except OSError:
                pass  # who asked has ended


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Have the files, signals, environment and place of the program."""
    _die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    if request["session"]:
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


def perform(argv: list[str]) -> None:
    """Do what ``python ARGV`` does."""
    option, *rest = argv
    before = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
    place = os.path.dirname(os.path.abspath(option)) if option not in ("-m", "-c") else os.getcwd()
    sys.path[:] = [place, *before, *_installed]
    if option == "-m":
        sys.argv = ["-m", *rest[1:]]
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif option == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(rest[0], main.__dict__)
    else:
        sys.argv = argv
        runpy.run_path(option, run_name="__main__")


_given = [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p]
_installed = [path for path in sys.path[1:] if path not in _given]

if __name__ == "__main__":
    _die_with_parent()
    importlib.import_module("torch")
    perform(serve(socket.socket(fileno=int(sys.argv[1])))["argv"])

# SPDX-License-Identifier: Apache-2.0
"""The process that has torch and kernforge imported and forks itself.

Its arguments are an address and the number of the socket that listens there. Each connection asks
for one Python program: it gets the process id, and the status when the program has ended. A program
whose connection is closed is killed.
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
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import fork_server

_PDEATHSIG = 1  # prctl(2)
_MOST_FILES = 32
_FREE = 500  # Numbers of files from here on are not asked for.
_IMPORTED = (
    *("torch", "torch._dynamo", "torch._inductor.compile_fx", "torch.testing._internal.optests"),
    *("pytest", "requests", "rich.console", "tomlkit"),
    *(
        "kernforge.cli.main",
        "kernforge.builder.api",
        "kernforge.check.api",
        "kernforge.publish.api",
    ),
    *("kernforge.bench.project", "kernforge.bench.report", "kernforge.testing.project_tests"),
)


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def serve(listener: socket.socket) -> dict[str, Any]:
    """Fork for every connection; returns what is asked for, in the new process alone."""
    ended, ends = socket.socketpair()
    for each in (ended, ends):
        each.setblocking(False)
    signal.set_wakeup_fd(ends.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    watch = selectors.DefaultSelector()
    for each in (listener, ended):
        watch.register(each, selectors.EVENT_READ)
    clients: dict[int, socket.socket] = {}
    while True:
        for key, _ in watch.select():
            if key.fileobj is ended:
                ended.recv(4096)
                _tell_status(clients, watch)
            elif key.fileobj is listener:
                client, _ = listener.accept()
                request, files = _received(client)
                pid = os.fork()
                if pid == 0:
                    watch.close()
                    for each in (listener, ended, ends, client, *clients.values()):
                        each.close()
                    _become(request, files)
                    return request
                _keep(client, pid, files)
                clients[pid] = client
                watch.register(client, selectors.EVENT_READ, pid)
            else:
                _kill(key, watch)


def _keep(client: socket.socket, pid: int, files: list[int]) -> None:
    """Tell a process id; the files are the process's alone."""
    for number in files:
        os.close(number)
    with contextlib.suppress(OSError):
        client.send(str(pid).encode())


def _kill(key: selectors.SelectorKey, watch: selectors.BaseSelector) -> None:
    """Kill the session of one whose client has something to say: that it has ended."""
    if key.fileobj in (each.fileobj for each in watch.get_map().values()):
        watch.unregister(key.fileobj)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(key.data, signal.SIGKILL)


def _received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What is asked for, and its files."""
    size = array.array("i").itemsize * _MOST_FILES
    data, extra, _, _ = client.recvmsg(1 << 20, socket.CMSG_SPACE(size))
    numbers = array.array("i")
    for _, _, part in extra:
        numbers.frombytes(part)
    return json.loads(data), list(numbers)


def _tell_status(clients: dict[int, socket.socket], watch: selectors.BaseSelector) -> None:
    """Tell the status of every program that has ended."""
    while clients:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        client = clients.pop(pid)
        with contextlib.suppress(KeyError):
            watch.unregister(client)
        with client, contextlib.suppress(OSError):  # who asked may have ended
            client.send(str(os.waitstatus_to_exitcode(status)).encode())


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Have the files, signals, environment and place of the program."""
    _die_with_parent()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
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


def _is_the_imported_one() -> bool:
    """Whether the kernforge on the search path is the one that was imported."""
    places = (Path(path, "kernforge", "__init__.py") for path in sys.path)
    return next(filter(Path.is_file, places)) == Path(sys.modules["kernforge"].__file__)


def perform(argv: list[str], installed: list[str]) -> None:
    """Do what ``python ARGV`` does.

    Args:
        argv: ``-m MODULE``, ``-c TEXT`` or a path after an optional ``-B``, and the program's
            arguments. Only modules of kernforge find kernforge imported.
        installed: the end of ``sys.path``, which no environment changes.
    """
    atexit.register(_leave)  # First, so that it runs last.
    importlib.invalidate_caches()  # More may have been installed.
    sys.dont_write_bytecode = argv[0] == "-B" or bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    if argv[0] == "-B":
        argv = argv[1:]
    first, *rest = argv
    place = Path.cwd() if first in ("-m", "-c") else Path(first).absolute().parent
    sys.path[:] = [str(place), *_search_path(), *installed]
    own = first == "-m" and rest[0].partition(".")[0] == "kernforge"
    if not own or not _is_the_imported_one():
        for name in [each for each in sys.modules if each.partition(".")[0] == "kernforge"]:
            del sys.modules[name]
    if first == "-m":
        if own:
            subprocess.Popen = fork_server.popen
        sys.argv = rest
        runpy.run_module(rest[0], run_name="__main__", alter_sys=True)
    elif first == "-c":
        sys.argv = ["-c", *rest[1:]]
        main = sys.modules["__main__"] = types.ModuleType("__main__")
        exec(rest[0], main.__dict__)  # noqa: S102 - what -c is for
    else:
        sys.argv = argv
        runpy.run_path(first, run_name="__main__")


def main(address: str, listener: socket.socket) -> None:
    """Serve; in a new process, do as it is asked and end as Python does."""
    _die_with_parent()
    for name in _IMPORTED:
        with contextlib.suppress(ImportError):  # A reader of a page has not installed all.
            importlib.import_module(name)
    fork_server.address = address
    installed = [path for path in sys.path[1:] if path not in _search_path()]
    gc.freeze()  # A collection would copy all that is shared.
    try:
        perform(serve(listener)["argv"], installed)
    except SystemExit as end:
        _status.append(end.code if isinstance(end.code, int) else int(end.code is not None))
        raise
    _status.append(0)


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))

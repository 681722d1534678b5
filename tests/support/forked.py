# SPDX-License-Identifier: Apache-2.0
"""Stands in for a program of ``fork_server``: has its files and directory, and ends as it does.

python -I -S forked.py ADDRESS ARGUMENTS...
"""

import ctypes
import json
import os
import signal
import socket
import sys


def main(address: str, argv: list[str]) -> None:
    """Ask for ``python ARGV`` and wait for its end."""
    if "KERNFORGE_TEST_COUNTS" in os.environ:  # it ends with the pytest that it stands for
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.connect(f"\0{address}")
    files = [0, 1, 2]
    request = {"argv": argv, "cwd": os.getcwd(), "env": dict(os.environ), "files": files}  # noqa: PTH109
    socket.send_fds(connection, [json.dumps(request).encode()], files)
    pid = int(connection.recv(99))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _frame: os.killpg(pid, number))
    status = int(connection.recv(99) or -signal.SIGKILL)
    if status >= 0:
        sys.exit(status)
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)


main(sys.argv[1], sys.argv[2:])

# SPDX-License-Identifier: Apache-2.0
"""Programs that are killed at one of their writes below a directory."""

import subprocess
import sys

MORTAL = """
import os, pathlib, signal, sys

WRITES = {"open", "os.mkdir", "os.rename", "os.symlink", "os.remove", "os.rmdir", "os.chmod"}
seen = 0


def mortal(root, deadly):
    def count(event, args):
        global seen
        if event in WRITES and root in str(args[0]):
            seen += 1
            if seen == deadly:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
"""


def run(program, root, deadly, *arguments):
    """Run a program that writes below ``root``; it prints how often, and is killed at one of these.

    Args:
        program: Python; it finds the directory as ``root``, and the arguments from ``sys.argv[3]``
            on.
        deadly: number of the write, from 1; 0 for none.
    """
    begin = "root = sys.argv[1]\nmortal(root, int(sys.argv[2]))"
    text = f"{MORTAL}\n{begin}\n{program}\nprint(seen)\n"
    argv = [sys.executable, "-c", text, *map(str, (root, deadly, *arguments))]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False, timeout=300)

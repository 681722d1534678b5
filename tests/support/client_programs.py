# SPDX-License-Identifier: Apache-2.0
"""Programs in which kernforge may answer ``import kernels``."""

import subprocess
import sys
from pathlib import Path

SRC = Path(__file__).parents[2] / "src"
INSTALL = "from kernforge import compat\ncompat.install()\n"


def run(*argv, **variables):
    """Run a program with a few variables only."""
    environment = {"PYTHONPATH": str(SRC), "PATH": "/usr/bin:/bin", **variables}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def python(program, **variables):
    """What a Python program prints, which must succeed."""
    done = run(sys.executable, "-c", program, **variables)
    assert done.returncode == 0, done.stderr
    return done.stdout

# SPDX-License-Identifier: Apache-2.0
"""Programs that a package of this environment may bring."""

import os
import shutil
import sys
from pathlib import Path

import pytest


def program(name: str) -> str:
    """Path of a program, beside this Python first; without one the test is skipped."""
    here = Path(sys.executable).parent
    path = shutil.which(name, path=f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path

# SPDX-License-Identifier: Apache-2.0
"""Programs that a package of this environment may bring."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest


def output(argv, cwd=None):
    """What a program prints, which must succeed."""
    done = subprocess.run(
        list(map(str, argv)), cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def program(name: str) -> str:
    """Path of a program, beside this Python first; without one the test is skipped."""
    here = Path(sys.executable).parent
    path = shutil.which(name, path=f"{here}{os.pathsep}{os.environ.get('PATH', os.defpath)}")
    if path is None:
        pytest.skip(f"{name} is not installed")
    return path


def check_style(project: Path, files: Iterable[Path]) -> None:
    """Lint the Python files of a project, and compare the format of some C++ and CUDA files."""
    rules = "--select=E,F,W,B,I,UP,SIM,RET,PTH,PT"
    lint = (program("ruff"), "check", "--isolated", "--line-length=100", rules, "--no-cache")
    style = f"-style=file:{Path(__file__).parents[2] / '.clang-format'}"
    compare = (program("clang-format"), "--dry-run", "-Werror", style)
    sources = [path for path in files if path.suffix in {".cu", ".cpp", ".h"}]
    assert sources
    output((*lint, project))
    output((*compare, *sources))

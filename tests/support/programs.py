# SPDX-License-Identifier: Apache-2.0
"""Programs that a package of this environment may bring."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest


def run(argv, *, cwd=None, env=os.environ, expect=0, **more):
    """Run a program to its end.

    Args:
        env: its environment; ``more`` has further variables.
        expect: the exit code that it must have; None for any.
    """
    words, variables = ([*map(str, argv)], {name: str(more[name]) for name in more})
    done = subprocess.run(
        words, cwd=cwd, env={**env, **variables}, capture_output=True, text=True, check=False
    )
    assert expect in (None, done.returncode), f"{words}\n{done.stdout}{done.stderr}"
    return done


def output(argv, cwd=None, **options):
    """What a program prints, which must succeed."""
    return run(argv, cwd=cwd, **options).stdout


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

# SPDX-License-Identifier: Apache-2.0
"""Headers of the running Python and of other interpreters on this machine.

An extension for another Python needs that Python's headers and no more of it: it is compiled and
packed by the running one.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path

from kernforge.errors import ToolchainError
from kernforge.setuptools.target import running_python
from kernforge.system.environment import user_file
from kernforge.toolchain import installed
from kernforge.toolchain.installed import LocalTree

# Directories with ``include/python3.12`` in them, or in their directories.
_PLACES = ("/usr", "/opt/python", "~/miniconda3/envs", "~/miniforge3/envs")
_PATTERNS = ("include/python3.*", "*/include/python3.*")
_NAME = re.compile(r"3\.\d+t?")
_ABOUT = "patchlevel.h"
_PATCH = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)


def find(python: str, variables: Mapping[str, str]) -> LocalTree:
    """A Python's headers.

    Args:
        python: as targets name it.
    """
    installed_ones = available(variables)
    if path := installed_ones.get(python):
        stated = _PATCH.search((path / _ABOUT).read_text(errors="replace"))
        locked = installed.identify_headers(path, stated[1] if stated else python)
        return LocalTree(locked=locked, path=path)
    raise ToolchainError(
        f"extensions for Python {python} need its headers, and they are not on this machine "
        "(looked at interpreters of uv, pyenv, the system, manylinux and conda)",
        hint=f"install that Python: `uv python install {python}`, `pyenv install {python}`, or "
        f"python{python}-dev of your distribution; there are headers of "
        f"{', '.join(installed_ones) or 'no Python'}",
    )


def available(variables: Mapping[str, str]) -> dict[str, Path]:
    """Directories of headers on this machine by the version of Python, as ``3.12`` or ``3.14t``."""
    uv = variables.get("UV_PYTHON_INSTALL_DIR") or "~/.local/share/uv/python"
    pyenv = variables.get("PYENV_ROOT") or "~/.pyenv"
    paths = [(running_python(), Path(sysconfig.get_path("include")))]
    for place in (uv, f"{pyenv}/versions", *_PLACES):
        root = user_file(place)
        below = sorted((p for each in _PATTERNS for p in root.glob(each)), reverse=True)
        # The name of this directory has the t of a free-threaded Python.
        paths += [(path.name.removeprefix("python"), path) for path in below]
    headers = {
        python: path
        for python, path in reversed(paths)
        if _NAME.fullmatch(python) and all((path / name).is_file() for name in ("Python.h", _ABOUT))
    }
    return dict(sorted(headers.items(), key=lambda each: int(each[0][2:].rstrip("t"))))

# SPDX-License-Identifier: Apache-2.0
"""Headers of the running Python and of other interpreters on this machine.

An extension for another Python needs that Python's headers and no more of it: it is compiled and
packed by the running one.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import ToolchainError
from kernforge.setuptools.target import running_python
from kernforge.toolchain import installed
from kernforge.toolchain.lockfile import LockedTree

# Directories with ``include/python3.12`` in them, or in their directories.
_PLACES = ("/usr", "/opt/python", "~/miniconda3/envs", "~/miniforge3/envs")
_PATTERNS = ("include/python3.*", "*/include/python3.*")
_NAME = re.compile(r"3\.\d+t?")
_PATCH = re.compile(r'^#define PY_VERSION\s+"([^"]+)"', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonHeaders:
    """The headers of a Python; ``path`` is the directory with ``Python.h``."""

    path: Path
    release: str

    def locked(self) -> LockedTree:
        """The headers as a lock records them."""
        return installed.identify_headers(self.path, self.release)


def find(python: str, variables: Mapping[str, str]) -> PythonHeaders:
    """The headers of a Python that is named as targets name it.

    Raises:
        ToolchainError: they are not on this machine.
    """
    there = available(variables)
    if python in there:
        return there[python]
    raise ToolchainError(
        f"extensions for Python {python} need its headers, and they are not on this machine "
        "(looked at interpreters of uv, pyenv, the system, manylinux and conda)",
        hint=f"install that Python: `uv python install {python}`, `pyenv install {python}`, or "
        f"python{python}-dev of your distribution; there are headers of "
        f"{', '.join(there) or 'no Python'}",
    )


def available(variables: Mapping[str, str]) -> dict[str, PythonHeaders]:
    """All Pythons whose headers are on this machine, by version, as ``3.12`` or ``3.14t``."""
    uv = variables.get("UV_PYTHON_INSTALL_DIR") or "~/.local/share/uv/python"
    pyenv = variables.get("PYENV_ROOT") or "~/.pyenv"
    found = [(running_python(), Path(sysconfig.get_path("include")))]
    for place in (uv, f"{pyenv}/versions", *_PLACES):
        root = Path(place).expanduser()
        paths = [path for pattern in _PATTERNS for path in root.glob(pattern)]
        # The name of this directory has the t of a free-threaded Python.
        found += [(path.name.removeprefix("python"), path) for path in sorted(paths, reverse=True)]
    headers: dict[str, PythonHeaders] = {}
    for python, path in found:
        about = path / "patchlevel.h"
        if python in headers or not _NAME.fullmatch(python):
            continue
        if (path / "Python.h").is_file() and about.is_file():
            stated = _PATCH.search(about.read_text(errors="replace"))
            release = stated[1] if stated else python
            headers[python] = PythonHeaders(path=path, release=release)
    return dict(sorted(headers.items(), key=lambda each: int(each[0][2:].rstrip("t"))))

# SPDX-License-Identifier: Apache-2.0
"""Headers of the running Python and of other interpreters on this machine.

An extension for another Python needs that Python's headers and no more of it: it is compiled and
packed by the running one.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import ToolchainError
from kernforge.setuptools.target import running_python
from kernforge.toolchain import installed
from kernforge.toolchain.lockfile import LockedTree

# What installs interpreters, and where, from the user's home or from the root.
_PLACES = (
    ("this Python", "", ""),
    ("uv", "~/.local/share/uv/python", "cpython-{number}*/include/python{python}"),
    ("pyenv", "~/.pyenv/versions", "{number}*/include/python{python}"),
    ("the system", "/usr/include", "python{python}"),
    ("/usr/local", "/usr/local/include", "python{python}"),
    ("manylinux", "/opt/python", "cp{digits}-{abi}/include/python{python}"),
    ("conda", "~/miniconda3/envs", "*/include/python{python}"),
    ("conda", "~/miniforge3/envs", "*/include/python{python}"),
)
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
    found = next(_found(python, variables), None)
    if found:
        return found
    there = sorted(available(variables), key=_number)
    looked = ", ".join(dict.fromkeys(place for place, _, _ in _PLACES))
    raise ToolchainError(
        f"extensions for Python {python} need its headers, and they are not on this machine "
        f"(looked at: {looked})",
        hint=f"install that Python: `uv python install {python}`, `pyenv install {python}`, or "
        f"python{python}-dev of your distribution; there are headers of "
        f"{', '.join(there) or 'no Python'}",
    )


def available(variables: Mapping[str, str]) -> dict[str, PythonHeaders]:
    """All Pythons whose headers are on this machine, by version."""
    versions = [f"3.{minor}{threads}" for minor in range(8, 20) for threads in ("", "t")]
    return {v: found for v in versions if (found := next(_found(v, variables), None))}


def _found(python: str, variables: Mapping[str, str]) -> Iterator[PythonHeaders]:
    for _, top, pattern in _PLACES:
        for path in _paths(python, top, pattern, variables):
            header = path / "patchlevel.h"
            if (path / "Python.h").is_file() and header.is_file():
                stated = _PATCH.search(header.read_text(errors="replace"))
                yield PythonHeaders(path=path, release=stated[1] if stated else python)


def _paths(python: str, top: str, pattern: str, variables: Mapping[str, str]) -> Iterator[Path]:
    if not top:
        if python == running_python():
            yield Path(sysconfig.get_path("include"))
        return
    if top.startswith("~/.pyenv") and variables.get("PYENV_ROOT"):
        root = Path(variables["PYENV_ROOT"]) / "versions"
    elif "/uv/" in top and variables.get("UV_PYTHON_INSTALL_DIR"):
        root = Path(variables["UV_PYTHON_INSTALL_DIR"])
    else:
        root = Path(top).expanduser()
    # Who installs a free-threaded Python has the t in the name of its headers alone.
    number = python.removesuffix("t")
    digits, abi = number.replace(".", ""), f"cp{python.replace('.', '')}"
    shape = pattern.format(python=python, number=number, digits=digits, abi=abi)
    # 3.1* is not 3.12: what follows the version is a dot, a dash or nothing.
    exact = re.compile(rf"(?:cpython-)?{re.escape(number)}t?(?:[.+-].*)?")
    for path in sorted(root.glob(shape), reverse=True):
        first = path.relative_to(root).parts[0]
        numbered = first[0].isdigit() or first.startswith("cpython-")
        if not numbered or exact.fullmatch(first):
            yield path


def _number(python: str) -> tuple[int, str]:
    minor = python.partition(".")[2]
    return int(minor.removesuffix("t")), python

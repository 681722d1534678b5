# SPDX-License-Identifier: Apache-2.0
"""Environment of a setup.py: a stub of torch, environment variables, the console.

A setup.py that was written for torch begins with ``import torch`` and reads a few values of it. The
stub has those of the target's torch, and its ``cpp_extension`` is kernforge's. Other names of torch
may be imported; the use of one is an error that names it and the line.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from kernforge.errors import StorageError
from kernforge.project.api import is_skipped
from kernforge.setuptools import build
from kernforge.setuptools.target import STUB, TorchTarget
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.environment import Environment
from kernforge.system.progress import Progress

_RESULTS = {"build", "dist"}  # at the top: a package or a source below may have such a name
_BUILT = re.compile(r"\.(?:cpython-|abi3).*\.so$")
# A setup.py without such a word looks for no toolkit; CUDA_HOME of the stub fetches one when
# asked.
_ASKS_CUDA = re.compile(r"cuda|nvcc", re.IGNORECASE)


def write(
    directory: Path, target: TorchTarget, environment: Environment, progress: Progress
) -> Path:
    """Write a stub with torch's headers into a new directory for ``PYTHONPATH``.

    Returns:
        The package ``torch`` in the directory.
    """
    quiet = Console(quiet=True)  # the build says what it compiles for, if it has device code
    archs = build.find_archs(target.cuda, environment, quiet) if target.cuda else ()
    package = write_package(directory, target, sorted({(a.major, a.minor) for a in archs}))
    include = build.toolchain_directory("torch", target, environment, progress) / "include"
    files.symlink(str(include), package / "include")
    files.make_dir(package / "lib")
    return package


def write_package(directory: Path, target: TorchTarget, archs: Iterable[tuple[int, int]]) -> Path:
    """Write the Python files of a stub into a new directory; returns the package ``torch``."""
    template = resources.files("kernforge") / "templates" / "torch_stub"
    with resources.as_file(template) as root:
        for path in (*root.rglob("*.py"), *root.rglob("*.json")):
            files.copy_file(path, directory / path.relative_to(root))
    package = directory / "torch"
    values = {
        "release": target.release,
        "cuda": str(target.cuda) if target.cuda else None,
        "archs": list(archs),
    }
    files.write_new(package / STUB, json.dumps(values, indent=1))
    about = directory / f"torch-{target.release}.dist-info"
    text = f"Metadata-Version: 2.1\nName: torch\nVersion: {target.release}\n"
    files.write_new(about / "METADATA", text)
    return package


def variables(
    package: Path,
    target: TorchTarget,
    environment: Environment,
    progress: Progress,
    *,
    packages: Path,
    setup: str,
) -> dict[str, str]:
    """Environment variables of a build behind a stub.

    Args:
        packages: directory of the project's build requirements.
        setup: text of the setup.py.
    """
    given, programs = environment.variables, [packages / "bin"]
    values = {
        "KERNFORGE_HOME": str(environment.home),
        "KERNFORGE_STUB": str(package),
        **(target.variables if target.installed is None else {}),
    }
    if target.cuda and _ASKS_CUDA.search(setup):
        home = build.toolchain_directory("cuda", target, environment, progress)
        values["CUDA_HOME"] = str(home)
        programs.insert(0, home / "bin")
    for name, places in (("PYTHONPATH", [package.parent, packages]), ("PATH", programs)):
        values[name] = os.pathsep.join([*map(str, places), *filter(None, [given.get(name)])])
    return values


class _FollowedConsole(Console):
    """Console that also appends to a file, as pip hides the output of builds."""

    def __init__(self, path: Path) -> None:
        super().__init__(failures=False)
        self._path = path

    def _print(self, text: str) -> None:
        super()._print(text)
        with contextlib.suppress(OSError, StorageError):  # of a terminal that is gone
            files.append(self._path, f"{text}\n")


def build_console(environment: Environment) -> Console:
    """Console of a build that pip may run."""
    shown = environment.kernforge_progress
    return _FollowedConsole(Path(shown)) if shown else Console(failures=False)


def copy_project(project: Path, copy: Path) -> None:
    """Copy a project without build results and environments; links stay links."""
    root = project.resolve()
    for directory, folders, names in os.walk(project):
        place = Path(directory)
        built = {name for name in folders if is_skipped(place / name)}
        built |= _RESULTS if place == project else set()
        folders[:] = [name for name in folders if name not in built]
        for path in (place / name for name in (*folders, *names)):
            there = copy / path.relative_to(project)
            if path.is_symlink():
                inside = path.resolve().is_relative_to(root)
                files.symlink(str(path.readlink() if inside else path.resolve()), there)
            elif path.is_file() and not _BUILT.search(path.name):
                files.copy_file(path, there)

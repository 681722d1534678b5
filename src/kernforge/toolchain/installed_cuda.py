# SPDX-License-Identifier: Apache-2.0
"""A CUDA toolkit that is installed on this machine and that the user names."""

from __future__ import annotations

import contextlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.system import digest
from kernforge.system.process import Command

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kernforge.artifact.variant import Version2
    from kernforge.system.process import Runner

_RELEASE = re.compile(r"release (\d+)\.(\d+), V([\d.]+)")
_PARTS = ("bin", "include", "lib64", "nvvm")
_NEEDED = ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart_static.a")


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaHome:
    """An installed toolkit.

    Attributes:
        path: its directory.
        version: major and minor.
        release: its full version.
        digest: of its version.json, of what nvcc says, and of the names and sizes of its files.
    """

    path: Path
    version: Version2
    release: str
    digest: str


def missing_in(path: Path) -> list[str]:
    """Files of a toolkit that a directory does not have."""
    return [part for part in _NEEDED if not (path / part).is_file()]


def installed(env: Mapping[str, str]) -> Path | None:
    """Directory of the CUDA toolkit that this environment names or has in the usual place."""
    for name in ("CUDA_HOME", "CUDA_PATH"):
        if env.get(name):
            return Path(env[name])
    for directory in env.get("PATH", "").split(os.pathsep):
        nvcc = Path(directory) / "nvcc"
        if directory and os.access(nvcc, os.X_OK):
            found = nvcc.resolve().parent.parent
            if not missing_in(found):  # a wrapper lies where no toolkit is
                return found
    usual = Path("/usr/local/cuda")
    return None if missing_in(usual) else usual


def identify(path: Path, runner: Runner) -> CudaHome:
    """Say which toolkit lies in a directory.

    Raises:
        UsageError: there is none, or a part of it is missing.
    """
    path = path.resolve()
    missing = missing_in(path)
    if missing:
        raise UsageError(
            f"{path} is no CUDA toolkit: it has no {', '.join(missing)}",
            hint="name the directory that holds bin/nvcc, include and lib64",
        )
    env = {"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"}
    said = runner(Command(argv=(str(path / "bin" / "nvcc"), "--version"), env=env)).stdout
    match = _RELEASE.search(said)
    if match is None:
        raise UsageError(
            f"{path}/bin/nvcc does not say its version: {' '.join(said.split())[:200]!r}",
            hint="run it with --version by hand",
        )
    stated = path / "version.json"
    text = stated.read_text(errors="replace") if stated.is_file() else ""
    return CudaHome(
        path=path,
        version=(int(match[1]), int(match[2])),
        release=_stated_release(text) or match[3],
        digest=digest.key("cuda-home", nvcc=said, stated=text, files=dict(_sizes(path))),
    )


def _stated_release(text: str) -> str:
    try:
        return str(json.loads(text)["cuda"]["version"])
    except (ValueError, KeyError, TypeError):
        return ""


def _sizes(root: Path) -> Iterator[tuple[str, int]]:
    for part in _PARTS:
        for directory, _, names in os.walk(root / part, followlinks=True):
            for name in names:
                path = f"{directory}/{name}"
                with contextlib.suppress(OSError):  # a link to nothing
                    yield path.removeprefix(f"{root}/"), os.stat(path).st_size  # noqa: PTH116

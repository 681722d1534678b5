# SPDX-License-Identifier: Apache-2.0
"""Python's own headers on this machine: not fetched, only recognised, as the host compiler is."""

from __future__ import annotations

import functools
import platform
import sysconfig
from pathlib import Path

from kernforge.errors import ToolchainError
from kernforge.system import digest, files
from kernforge.toolchain.lockfile import LockedPython


def directory() -> Path:
    """Where they are.

    Raises:
        ToolchainError: they are not installed.
    """
    found = Path(sysconfig.get_path("include"))
    if not (found / "Python.h").is_file():
        raise ToolchainError(
            f"a source includes Python's headers, and {found}/Python.h is not there",
            hint="install them (Debian, Ubuntu: python3-dev; Fedora: python3-devel), or keep the "
            "binding to torch's stable ABI, which does not need them",
        )
    return found


@functools.cache
def locked() -> LockedPython:
    """The headers as a lock records them.

    Raises:
        ToolchainError: they are not installed.
    """
    top = directory()
    found = {str(path.relative_to(top)): path for path in top.rglob("*") if path.is_file()}
    # Debian's pyconfig.h only includes another one, beside the system's headers.
    multiarch = sysconfig.get_config_var("MULTIARCH") or ""
    apart = top.parent / multiarch / top.name / "pyconfig.h"
    if multiarch and apart.is_file():
        found[f"{multiarch}/pyconfig.h"] = apart
    contents = {name: files.sha256_file(path) for name, path in found.items()}
    return LockedPython(
        release=platform.python_version(),
        headers=digest.key("python-headers", files=contents),
    )

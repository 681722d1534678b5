# SPDX-License-Identifier: Apache-2.0
"""A package ``kernels`` whose code is kernforge: as a wheel, and as a directory for one command.

Both hold one module that calls ``kernforge.compat.install``, and the metadata by which other
packages find out that ``kernels`` is installed, and which version.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from kernforge.artifact.metadata import CLIENT_VERSION
from kernforge.errors import RequestError, StorageError
from kernforge.system import files
from kernforge.system.environment import Environment

MARK = "__kernforge__"
"""An attribute that only kernforge's modules of the name ``kernels`` have."""

_MODULE = """\
# Written by kernforge: `import kernels` is answered by kernforge.compat.
__kernforge__ = True
from kernforge import compat

compat.install({version!r})
"""
_METADATA = """\
Metadata-Version: 2.1
Name: kernels
Version: {version}
Summary: Answers `import kernels` by kernforge
License: Apache-2.0
Requires-Python: >=3.11
Requires-Dist: kernforge
Provides-Extra: benchmark
Provides-Extra: curated
Provides-Extra: torch
"""
_ENTRY_POINTS = """\
[console_scripts]
kernels = kernforge.__main__:main_as_client

[egg_info.writers]
kernels.lock = kernforge.application.setuptools_hook:write_lock
"""


def claimed_version(environment: Environment) -> str:
    """The version of ``kernels`` that kernforge claims to be."""
    return environment.kernforge_kernels_version or CLIENT_VERSION


def metadata_files(version: str) -> dict[str, str]:
    """The files of the package's ``.dist-info``."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - takes milliseconds

    try:
        Version(version)
    except InvalidVersion:
        raise RequestError(
            f"{version!r} is not a version of kernels", hint=f"write one such as {CLIENT_VERSION}"
        ) from None
    return {
        "METADATA": _METADATA.format(version=version),
        "entry_points.txt": _ENTRY_POINTS,
        "top_level.txt": "kernels\n",
    }


def package_files(version: str) -> dict[str, bytes]:
    """All files of the package, by path."""
    information = f"kernels-{version}.dist-info"
    information_files = {
        f"{information}/{n}": text.encode() for n, text in metadata_files(version).items()
    }
    return information_files | {"kernels/__init__.py": _MODULE.format(version=version).encode()}


def write_wheel(directory: Path, version: str, home: Path) -> Path:
    """Write the package as a wheel, the same bytes for the same version."""
    from kernforge.wheel import archive  # noqa: PLC0415 - for a wheel alone
    from kernforge.wheel.plan import WheelPlan  # noqa: PLC0415

    members = package_files(version)
    plan = WheelPlan(
        distribution="kernels",
        version=version,
        tag=("py3", "none", "any"),
        module="kernels",
        requires=("kernforge",),
        metadata=members.pop(f"kernels-{version}.dist-info/METADATA").decode(),
    )
    files.make_dir(directory)
    return archive.write(plan, members, directory, home)


def command_environment(environment: Environment, version: str) -> dict[str, str]:
    """Variables with which a command and its child processes find kernforge as ``kernels``.

    The package is written below ``KERNFORGE_HOME`` and comes first in ``PYTHONPATH``, so that a
    user who may write there could replace the code of the command.
    """
    place = environment.home / "as-kernels" / version
    package = package_files(version)
    for directory in (environment.home, place.parent, place):
        files.make_dir(directory)
        _refuse_shared(directory)
    for path, data in package.items():
        target = place / path
        if not target.is_file() or target.read_bytes() != data:
            files.make_dir(target.parent)
            files.write_atomic(target, data)
        _refuse_shared(target.parent)
    before = environment.variables.get("PYTHONPATH")
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, (str(place), before))),
        "KERNFORGE_KERNELS_VERSION": version,
    }


def _refuse_shared(directory: Path) -> None:
    """Refuse a directory that another user than this one and root may write to."""
    status = directory.stat()
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(
            f"{directory} is writable by other users, and its files are imported",
            hint=f"chmod go-w {directory}, or set KERNFORGE_HOME to a directory of your own",
        )
    if status.st_uid not in {os.geteuid(), 0}:
        raise StorageError(
            f"{directory} is owned by another user, and its files are imported",
            hint="set KERNFORGE_HOME to a directory of your own",
        )

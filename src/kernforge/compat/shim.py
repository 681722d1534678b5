# SPDX-License-Identifier: Apache-2.0
"""A package ``kernels`` whose code is kernforge: as a wheel, and as a directory for one command.

Both hold one module that calls ``kernforge.compat.install``, and the metadata by which other
packages find out that ``kernels`` is installed, and which version.
"""

from __future__ import annotations

import base64
import hashlib
import io
import os
import stat
import zipfile
from pathlib import Path

from kernforge.artifact.metadata import CLIENT_VERSION
from kernforge.errors import RequestError, StorageError
from kernforge.system import files
from kernforge.system.environment import Environment

MARK = "__kernforge__"
"""An attribute of our modules, by which they are told from the client's."""

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
_WHEEL = """\
Wheel-Version: 1.0
Generator: kernforge
Root-Is-Purelib: true
Tag: py3-none-any
"""
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)


def claimed_version(environment: Environment) -> str:
    """The version of ``kernels`` that kernforge claims to be."""
    return environment.kernforge_kernels_version or CLIENT_VERSION


def metadata_files(version: str) -> dict[str, str]:
    """The files of the package's ``.dist-info``, without the record."""
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - takes milliseconds

    try:
        Version(version)
    except InvalidVersion:
        raise RequestError(
            f"{version!r} is not a version of kernels", hint=f"write one such as {CLIENT_VERSION}"
        ) from None
    return {
        "METADATA": _METADATA.format(version=version),
        "WHEEL": _WHEEL,
        "entry_points.txt": _ENTRY_POINTS,
        "top_level.txt": "kernels\n",
    }


def package_files(version: str) -> dict[str, bytes]:
    """All files of the package, by path, with their record at the end."""
    information = f"kernels-{version}.dist-info"
    found = {"kernels/__init__.py": _MODULE.format(version=version).encode()}
    for name, text in metadata_files(version).items():
        found[f"{information}/{name}"] = text.encode()
    lines = []
    for path, data in found.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        lines.append(f"{path},sha256={digest},{len(data)}")
    record = f"{information}/RECORD"
    found[record] = "\n".join([*lines, f"{record},,", ""]).encode()
    return found


def write_wheel(directory: Path, version: str) -> Path:
    """Write the package as a wheel, the same bytes for the same version.

    Raises:
        RequestError: the version is not one.
        StorageError: the directory cannot be written to.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in package_files(version).items():
            archive.writestr(zipfile.ZipInfo(path, _FIRST_DATE), data)
    target = directory / f"kernels-{version}-py3-none-any.whl"
    files.make_dir(directory)
    files.write_atomic(target, buffer.getvalue())
    return target


def command_environment(environment: Environment, version: str) -> dict[str, str]:
    """Variables with which a command and its child processes find kernforge as ``kernels``.

    The package is written below ``KERNFORGE_HOME`` and comes first in ``PYTHONPATH``: whoever may
    write there decides what the command imports.

    Raises:
        RequestError: the version is not one.
        StorageError: the directory cannot be written to, or others may write to it.
    """
    place = environment.home / "as-kernels" / version
    found = package_files(version)
    for directory in (environment.home, place.parent, place):
        files.make_dir(directory)
        _refuse_shared(directory)
    for path, data in found.items():
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
    """Refuse a directory that another user than this one and root may write to.

    Raises:
        StorageError: it is one.
    """
    status = directory.stat()
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise StorageError(
            f"{directory} can be written by others, and what lies there is imported",
            hint=f"chmod go-w {directory}, or set KERNFORGE_HOME to a directory of your own",
        )
    if status.st_uid not in {os.geteuid(), 0}:
        raise StorageError(
            f"{directory} is of another user, and what lies there is imported",
            hint="set KERNFORGE_HOME to a directory of your own",
        )

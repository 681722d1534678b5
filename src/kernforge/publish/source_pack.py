# SPDX-License-Identifier: Apache-2.0
"""What of a project to publish beside its variants, so that others can build more of them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.errors import UsageError
from kernforge.project import api as project
from kernforge.project import source_files
from kernforge.toolchain import lockfile

if TYPE_CHECKING:
    from pathlib import Path

    from kernforge.project.api import Project

# SPDX identifiers, without the version, of licences that let anyone pass the source on.
_OPEN = (
    *("0bsd", "agpl", "apache", "artistic", "bsd", "bsl-1", "cc0", "ecl", "epl", "eupl", "gpl"),
    *("isc", "lgpl", "mit", "mpl", "ms-pl", "ncsa", "postgresql", "unlicense", "upl", "zlib"),
)
_NOT_NAMES = re.compile(r"\bWITH\s+[^()\s]+|\b(?:AND|OR)\b|[()]", re.IGNORECASE)
_LEGAL = re.compile(r"(?:LICEN[CS]E|NOTICE|COPYING)(?:[.-][^/]*)?", re.IGNORECASE)


def pack(one: Project, *, wanted: bool | None) -> dict[str, Path]:
    """The files that a build of the project reads, with its lock and its licence, by path.

    Args:
        one: the project.
        wanted: None packs them if the licence is an open one and the project is locked.

    Raises:
        UsageError: they are wanted, and the project has no lock.
    """
    if wanted is False or (wanted is None and not is_open(one.manifest.general.license or "")):
        return {}
    if lockfile.FILE_NAME not in one.files:
        if wanted is None:
            return {}
        raise UsageError(
            f"{one.root} has no {lockfile.FILE_NAME}, so nobody could build its source alike",
            hint="run `kernforge lock-toolchain`, or publish with --no-with-source",
        )
    read = {project.MANIFEST, lockfile.FILE_NAME, *source_files.read(one).digests}
    read |= {path for path in one.files if _LEGAL.fullmatch(path)}
    return {path: one.files[path] for path in sorted(read)}


def is_open(license_text: str) -> bool:
    """Whether a licence, as an SPDX expression, lets anyone pass the source on."""
    names = _NOT_NAMES.sub(" ", license_text.lower()).split()
    return bool(names) and all(name.startswith(_OPEN) for name in names)

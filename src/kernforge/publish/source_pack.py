# SPDX-License-Identifier: Apache-2.0
"""The files of a project that are published with its variants, so that others can build more."""

from __future__ import annotations

import re
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project import units
from kernforge.project.api import MANIFEST, Project
from kernforge.toolchain import lockfile

# SPDX identifiers, without the version, of licences that allow everyone to redistribute the source.
_OPEN = (
    *("0bsd", "agpl", "apache", "artistic", "bsd", "bsl-1", "cc0", "ecl", "epl", "eupl", "gpl"),
    *("isc", "lgpl", "mit", "mpl", "ms-pl", "ncsa", "postgresql", "unlicense", "upl", "zlib"),
)
_NOT_NAMES = re.compile(r"\bWITH\s+[^()\s]+|\b(?:AND|OR)\b|[()]", re.IGNORECASE)
_LEGAL = re.compile(r"(?:LICEN[CS]E|NOTICE|COPYING)(?:[.-][^/]*)?", re.IGNORECASE)


def pack(project: Project, *, wanted: bool | None) -> dict[str, Path]:
    """The files that a build of the project reads, with its lock and its licence, by path.

    The bundled headers that it includes are among them: another kernforge may have others.

    Args:
        wanted: whether to include the source; None includes it if the licence is an open one and
            the project has a lock.

    Raises:
        UsageError: the source is wanted, and the project has no lock.
    """
    if wanted is False or (wanted is None and not is_open(project.manifest.general.license or "")):
        return {}
    if lockfile.FILE_NAME not in project.files:
        if wanted is None:
            return {}
        raise UsageError(
            f"{project.root} has no {lockfile.FILE_NAME}, which others need to build its source",
            hint="run `kernforge lock`, or publish with --no-with-source",
        )
    own = {MANIFEST, lockfile.FILE_NAME, *project.sources.digests}
    own |= {path for path in project.files if _LEGAL.fullmatch(path)}
    headers = project.sources.bundled_headers.keys() - own
    packed = {path: project.files[path] for path in own}
    packed |= {path: units.bundled_path(path) for path in headers}
    return dict(sorted(packed.items()))


def is_open(license_text: str) -> bool:
    """Whether a licence, as an SPDX expression, allows everyone to redistribute the source."""
    names = _NOT_NAMES.sub(" ", license_text.lower()).split()
    return bool(names) and all(name.startswith(_OPEN) for name in names)

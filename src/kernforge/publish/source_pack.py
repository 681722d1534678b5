# SPDX-License-Identifier: Apache-2.0
"""The source files that are published with variants, for builds of more variants."""

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
    """The input files of the project's builds, with its lock and its licence, by path.

    The bundled headers are included, because they differ between versions of kernforge.

    Args:
        wanted: whether to include the source; None includes it if the licence is open and the
            project has a lock.
    """
    if wanted is False or (wanted is None and not is_open(project.manifest.general.license or "")):
        return {}
    if lockfile.FILE_NAME not in project.files:
        if wanted is None:
            return {}
        raise UsageError(
            f"{project.root} has no {lockfile.FILE_NAME}, which a build of its source needs",
            hint="run `kernforge lock`, or publish with --no-with-source",
        )
    own = {MANIFEST, lockfile.FILE_NAME, *project.sources.digests}
    own |= {path for path in project.files if _LEGAL.fullmatch(path)}
    packed = {path: units.bundled_path(path) for path in project.sources.bundled_headers}
    packed |= {path: project.files[path] for path in own}
    return dict(sorted(packed.items()))


def is_open(license_text: str) -> bool:
    """Whether a licence, as an SPDX expression, allows everyone to redistribute the source."""
    names = _NOT_NAMES.sub(" ", license_text.lower()).split()
    return bool(names) and all(name.startswith(_OPEN) for name in names)

# SPDX-License-Identifier: Apache-2.0
"""Pages of a package index by PEP 503, with hashes and the metadata files of PEP 658."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from packaging.utils import canonicalize_name

_PAGE = """<!DOCTYPE html>
<html>
<head><meta charset="utf-8"><meta name="pypi:repository-version" content="1.0"><title>{title}</title></head>
<body>
{links}</body>
</html>
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Listed:
    """A wheel that an index lists.

    Attributes:
        file: file name of the wheel, which is one directory above its page.
        sha256: hex SHA-256 of the wheel.
        metadata_sha256: hex SHA-256 of its METADATA, which is the file ``<file>.metadata``.
        requires_python: ``Requires-Python`` of METADATA.
    """

    file: str
    sha256: str
    metadata_sha256: str
    requires_python: str

    @property
    def project(self) -> str:
        """The normalised name of the distribution."""
        return str(canonicalize_name(self.file.partition("-")[0]))


def pages(wheels: Iterable[Listed]) -> dict[str, str]:
    """Text of every page by its path below the index's root."""
    projects: dict[str, list[Listed]] = {}
    for wheel in sorted(wheels, key=lambda listed: listed.file):
        projects.setdefault(wheel.project, []).append(wheel)
    links = "".join(f'<a href="{name}/">{name}</a><br>\n' for name in sorted(projects))
    return {
        "index.html": _PAGE.format(title="Simple index", links=links),
        **{f"{name}/index.html": _project(name, wheels_of) for name, wheels_of in projects.items()},
    }


def _project(name: str, wheels: Sequence[Listed]) -> str:
    links = "".join(
        f'<a href="../{quote(wheel.file)}#sha256={wheel.sha256}"'
        f' data-requires-python="{escape(wheel.requires_python)}"'
        f' data-core-metadata="sha256={wheel.metadata_sha256}"'
        f' data-dist-info-metadata="sha256={wheel.metadata_sha256}">{escape(wheel.file)}</a><br>\n'
        for wheel in wheels
    )
    return _PAGE.format(title=f"Links for {name}", links=links)

# SPDX-License-Identifier: Apache-2.0
"""Rewrite a build.toml of an older edition as edition 5.

Only what differs is written, so that comments, order and spelling of the rest stay. The result is
parsed before it is returned.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tomlkit

from kernforge.errors import ManifestError
from kernforge.manifest import document as manifest, editions
from kernforge.manifest.editions import Edition
from kernforge.system.files import write_atomic

_BOM = "\ufeff"


def migrate(text: str, *, source: str = "build.toml", license_name: str = "") -> str:
    """The manifest as edition 5; one of edition 5 or 6 is not changed.

    The rules are those of ``editions.upgraded``, which are kernel-builder's with two exceptions: it
    drops an invalid ``[torch]`` table of edition 3, where this function raises an error that lists
    its mistakes, and it drops ``python-depends`` of edition 2, which this function keeps.

    Args:
        license_name: license of a file that names none, best as an SPDX identifier.
    """
    edition = manifest.edition_of(text, source=source)
    if edition >= Edition.V5:
        return text
    data = manifest.read_data(text, source=source)
    new = editions.upgraded(data, edition)
    if "license" not in data["general"]:
        if not license_name:
            raise ManifestError(
                f"{source}: [general] license: missing; edition 5 requires it",
                hint="give the license of the kernel: `kernforge adopt . --license Apache-2.0`",
            )
        new["general"]["license"] = license_name
    document = tomlkit.parse(text.removeprefix(_BOM).replace("\r\n", "\n"))
    _apply(document, data, new)
    result = tomlkit.dumps(document)
    if "\r\n" in text:
        result = result.replace("\n", "\r\n")
    manifest.parse(result, source=source)
    return result


def _apply(node: Any, old: editions.Data, new: editions.Data, *, top: bool = True) -> None:
    """Change a table of a TOML document to what differs between two plain tables."""
    for key in [key for key in old if key not in new]:
        del node[key]
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            _apply(node[key], before, value, top=False)
        elif isinstance(value, dict):
            table = tomlkit.table()
            table.update(value)
            if not top:
                table.add(tomlkit.nl())
            node[key] = table
        elif isinstance(value, list) and isinstance(before, list):
            for index, item in enumerate(value):
                if item != before[index]:  # a dependency that has another name now
                    node[key][index] = item
        elif value != before:
            node[key] = value


def migrate_file(path: Path, *, license_name: str = "") -> None:
    """Convert a file to edition 5 in place, atomically, if it is of an older edition."""
    # Bytes and not text mode: line ends are not changed.
    text = path.read_bytes().decode()
    result = migrate(text, source=path.name, license_name=license_name)
    if result != text:
        write_atomic(path, result)

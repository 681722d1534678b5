# SPDX-License-Identifier: Apache-2.0
"""Rewrite a build.toml of an older edition as edition 5.

Only what differs is written, so that comments, order and spelling of the rest stay. The result is
parsed before it is returned.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import tomlkit

from kernforge.errors import ManifestError
from kernforge.manifest import document as manifest
from kernforge.manifest import editions
from kernforge.manifest.document import edition_of
from kernforge.manifest.editions import Edition
from kernforge.system.files import write_atomic

_BOM = "\ufeff"


def migrate(
    text: str, *, source: str = "build.toml", license_name: str = ""
) -> tuple[str, list[str]]:
    """Convert a manifest to edition 5.

    The rules are those of ``editions.upgraded``, which are kernel-builder's with two exceptions: it
    drops an invalid ``[torch]`` table of edition 3, where this function raises an error that lists
    its mistakes, and it drops ``python-depends`` of edition 2, which this function keeps.

    Args:
        source: name of the file for messages.
        license_name: license of a file that names none, best as an SPDX identifier.

    Returns:
        The new text, and a note for each change; a text of edition 5 or 6 is not changed.

    Raises:
        ManifestError: the file is wrong, or names no license and none is given.
    """
    edition = edition_of(text, source=source)
    if edition >= Edition.V5:
        return text, [f"{source} is of edition {int(edition)} already; nothing is changed"]
    data = manifest.read_data(text, source=source)
    if "license" not in data["general"] and not license_name:
        raise ManifestError(
            f"{source}: [general] license: missing; edition 5 requires it",
            hint="give the license of the kernel, such as `kernforge adopt . --license Apache-2.0`",
        )
    new = editions.upgraded(data, edition)
    if license_name and "license" not in data["general"]:
        new["general"]["license"] = license_name
    document = tomlkit.parse(text.removeprefix(_BOM).replace("\r\n", "\n"))
    notes = _apply(document, data, new, ())
    result = tomlkit.dumps(document)
    if "\r\n" in text:
        result = result.replace("\n", "\r\n")
    if text.startswith(_BOM):
        result = _BOM + result
    manifest.parse(result, source=source)
    return result, notes


def _apply(node: Any, old: editions.Data, new: editions.Data, path: tuple[str, ...]) -> list[str]:
    """Change a table of a TOML document to what differs between two plain tables; returns notes."""
    notes = []
    place = f"[{'.'.join(path)}] " if path else ""
    for key in [key for key in old if key not in new]:
        del node[key]
        notes.append(f"{place}{key} is removed")
    for key, value in new.items():
        before = old.get(key)
        if isinstance(value, dict) and isinstance(before, dict):
            notes += _apply(node[key], before, value, (*path, key))
        elif isinstance(value, dict):
            table = tomlkit.table()
            table.update(value)
            if path:
                table.add(tomlkit.nl())
            node[key] = table
            notes.append(f"[{'.'.join((*path, key))}] is added")
        elif isinstance(value, list) and isinstance(before, list):
            for index in range(len(value)):
                if value[index] != before[index]:  # a dependency that has another name now
                    node[key][index] = value[index]
                    notes.append(f"{place}{key}: {before[index]} is {value[index]}")
        elif value != before:
            node[key] = value
            notes.append(
                f"{place}{key} = {json.dumps(value)} is {'set' if key in old else 'added'}"
            )
    return notes


def migrate_file(path: Path, *, license_name: str = "") -> list[str]:
    """Convert a file to edition 5 in place, atomically, if it is of an older edition.

    Args:
        license_name: license of a file that names none.

    Returns:
        A note for each change.

    Raises:
        ManifestError: the file is wrong, or names no license and none is given; it is not changed.
        OSError: the file cannot be read.
        StorageError: the file cannot be written.
    """
    # Bytes and not text mode: line ends are not changed.
    text = path.read_bytes().decode()
    result, notes = migrate(text, source=path.name, license_name=license_name)
    if result != text:
        write_atomic(path, result)
    return notes

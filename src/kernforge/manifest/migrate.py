# SPDX-License-Identifier: Apache-2.0
"""Rewrite a build.toml of edition 3 or 4 as edition 5.

Lines are added and no line is changed, so that comments, order and spelling stay. The result is
parsed before it is returned.
"""

from __future__ import annotations

import re
import tomllib
from typing import TYPE_CHECKING

import tomlkit

from kernforge.errors import ManifestError
from kernforge.manifest import document as manifest
from kernforge.manifest import editions as legacy
from kernforge.manifest.document import Edition, edition_of
from kernforge.manifest.toml_positions import key_lines
from kernforge.system.files import write_atomic

if TYPE_CHECKING:
    from pathlib import Path

# A header of [general] with nothing but a comment after it.
_GENERAL = re.compile(r"[ \t]*\[[ \t]*general[ \t]*\][ \t]*(#.*)?")
_BOM = "\ufeff"


def migrate(text: str, *, source: str = "build.toml") -> tuple[str, list[str]]:
    """Convert a manifest to edition 5.

    From 4, the key ``edition`` is added. From 3, also ``version = 1`` if there is no version, and
    ``[torch-noarch]`` if there is no framework table. The rules are those of kernel-builder 0.17.2
    with one exception: kernel-builder drops an invalid ``[torch]`` table of edition 3, and this
    function raises an error that lists its mistakes.

    Args:
        text: the content of build.toml.
        source: name of the file for messages.

    Returns:
        The new text, and a note for each change; a text of edition 5 is not changed.

    Raises:
        ManifestError: the file is wrong, or of edition 3 without a license.
    """
    edition = edition_of(text, source=source)
    if edition == Edition.V5:
        return text, [f"{source} is already of edition 5; nothing is changed"]
    data = tomllib.loads(text.removeprefix(_BOM))
    if "license" not in data["general"]:
        raise ManifestError(
            f"{source}: [general] license: missing; edition 5 requires it",
            hint='add the license of the kernel, such as license = "Apache-2.0", and migrate again',
        )
    added = {key: value for key, value in _GENERAL_KEYS.items() if key not in data["general"]}
    notes = [f"[general] {key} = {value} is added" for key, value in added.items()]
    result = _with_general_keys(text, added)
    if not legacy.has_framework(data):
        result = f"{result.rstrip()}\n\n[torch-noarch]\n"
        notes.append("[torch-noarch] is added: edition 3 expressed it by no framework table")
    manifest.parse(result, source=source)
    return result, notes


_GENERAL_KEYS = {"version": 1, "edition": int(Edition.V5)}


def migrate_file(path: Path) -> list[str]:
    """Convert a file to edition 5 in place, atomically, if it is of an older edition.

    Returns:
        A note for each change.

    Raises:
        ManifestError: the file is wrong, or of edition 3 without a license; it is not changed.
        OSError: the file cannot be read.
        StorageError: the file cannot be written.
    """
    # Bytes and not text mode: line ends are not changed.
    text = path.read_bytes().decode()
    result, notes = migrate(text, source=path.name)
    if result != text:
        write_atomic(path, result)
    return notes


def _with_general_keys(text: str, added: dict[str, int]) -> str:
    """Add keys to ``[general]`` after its version or, without a version, after its name."""
    lines = text.split("\n")
    line_of = key_lines(text.removeprefix(_BOM))
    after = line_of.get(("general", "version")) or line_of[("general", "name")]
    header = line_of[("general",)]
    if not _GENERAL.fullmatch(lines[header - 1].removeprefix(_BOM).rstrip()):
        return _with_tomlkit(text, added)
    end = "\r" if lines[after - 1].endswith("\r") else ""
    lines[after:after] = [f"{key} = {value}{end}" for key, value in added.items()]
    return "\n".join(lines)


def _with_tomlkit(text: str, added: dict[str, int]) -> str:
    """Add keys to a file that has ``general.name = ...`` or ``general = {...}``."""
    document = tomlkit.parse(text.removeprefix(_BOM))
    general = document["general"]
    for key, value in added.items():
        general[key] = value
    return tomlkit.dumps(document)

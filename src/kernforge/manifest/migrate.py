# SPDX-License-Identifier: Apache-2.0
"""Rewrite a build.toml of an older edition as edition 5.

Lines are added, and of editions 1 and 2 the keys that edition 5 does not have are replaced, so that
comments, order and spelling of the rest stay. The result is parsed before it is returned.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tomlkit

from kernforge.errors import ManifestError
from kernforge.manifest import document as manifest
from kernforge.manifest import editions as legacy
from kernforge.manifest.document import edition_of
from kernforge.manifest.editions import Edition
from kernforge.manifest.toml_positions import key_lines
from kernforge.system.files import write_atomic

# A header of [general] with nothing but a comment after it.
_GENERAL = re.compile(r"[ \t]*\[[ \t]*general[ \t]*\][ \t]*(#.*)?")
# The language of a section of edition 1; alone in its line, or in an inline table.
_LANGUAGE = re.compile(r"""language[ \t]*=[ \t]*(?:"[^"]*"|'[^']*')""")
_BOM = "\ufeff"


def migrate(
    text: str, *, source: str = "build.toml", license_name: str = ""
) -> tuple[str, list[str]]:
    """Convert a manifest to edition 5.

    From 4, the key ``edition`` is added. From 3, also ``version = 1`` if there is no version, and
    ``[torch-noarch]`` if there is no framework table. From 2, the backends are those of the sections,
    ``universal`` becomes ``[torch-noarch]``, and the bounds of CUDA move to ``[general.cuda]``. From
    1, ``language`` becomes ``backend``, and ``cuda-hipify`` a section for CUDA and one for ROCm.
    The rules are kernel-builder's with two exceptions: it drops an invalid ``[torch]`` table of
    edition 3, where this function raises an error that lists its mistakes, and it drops
    ``python-depends`` of edition 2, which this function keeps.

    Args:
        source: name of the file for messages.
        license_name: license of a file that names none, best as an SPDX identifier.

    Returns:
        The new text, and a note for each change; a text of edition 5 is not changed.

    Raises:
        ManifestError: the file is wrong, or names no license and none is given.
    """
    edition = edition_of(text, source=source)
    if edition == Edition.V5:
        return text, [f"{source} is already of edition 5; nothing is changed"]
    data = manifest.read_data(text, source=source)
    if "license" not in data["general"] and not license_name:
        raise ManifestError(
            f"{source}: [general] license: missing; edition 5 requires it",
            hint="give the license of the kernel, such as `kernforge migrate --license Apache-2.0`",
        )
    general = legacy.upgraded(data, edition)["general"]
    values = {key: general[key] for key in ("version", "edition", "license", "backends")}
    added = {key: value for key, value in values.items() if key not in data["general"]}
    added |= {"license": license_name} if "license" in added else {}
    notes = [f"[general] {key} = {json.dumps(value)} is added" for key, value in added.items()]
    result = text
    if edition <= Edition.V2:
        result, changes = _of_edition_3(text, data)
        notes += changes
    result, changes = _with_new_names(result, data, general["name"])
    notes += changes
    result = _with_general_keys(result, added)
    if edition == Edition.V3 and not legacy.has_framework(data):
        result = f"{result.rstrip()}\n\n[torch-noarch]\n"
        notes.append("[torch-noarch] is added: edition 3 expressed it by no framework table")
    manifest.parse(result, source=source)
    return result, notes


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


def _of_edition_3(text: str, data: legacy.Data) -> tuple[str, list[str]]:
    """Replace the keys of editions 1 and 2 that edition 3 does not have; a note for each."""
    notes: list[str] = []
    new = legacy.upgraded(data, Edition.V2)
    kernels = new.get("kernel", {})
    backends = {
        name: kernels[name]["backend"]
        for name, old in data.get("kernel", {}).items()
        if "backend" not in old
    }
    document = tomlkit.parse(_with_backends(text.removeprefix(_BOM), backends))
    general, table = document["general"], data["general"]
    if "cuda" in new["general"] and new["general"]["cuda"] != table.get("cuda"):
        bounds = tomlkit.table()
        bounds.update(new["general"]["cuda"])
        bounds.add(tomlkit.nl())
        general["cuda"] = bounds
        notes.append(
            "[general] cuda-minver and cuda-maxver are minver and maxver of [general.cuda]"
        )
    for key in ("universal", "cuda-minver", "cuda-maxver"):
        if key in table:
            del general[key]
            notes += ["[general] universal is removed"] if key == "universal" else []
    if "torch-noarch" in new:
        noarch = tomlkit.table()
        noarch.update(new["torch-noarch"])
        document.pop("torch", None)
        document["torch-noarch"] = noarch
        notes.append("[torch] is [torch-noarch]: the kernel is Python alone")
    elif "universal" in data["torch"]:
        del document["torch"]["universal"]
        notes.append("[torch] universal is removed")
    for name, section in kernels.items():
        old = data["kernel"].get(name)
        if old is None:
            added = tomlkit.table()
            added.update(section)
            document["kernel"][name] = added
            notes.append(
                f"[kernel.{name}] is added, with backend = {json.dumps(section['backend'])}"
            )
        elif "backend" not in old:
            for key in sorted(old.keys() - section.keys() - {"language"}):
                del document["kernel"][name][key]
            notes.append(f"[kernel.{name}] backend = {json.dumps(section['backend'])} is added")
    return tomlkit.dumps(document), notes


def _with_new_names(text: str, data: legacy.Data, name: str) -> tuple[str, list[str]]:
    """Write the name with dashes, and dependencies by their new names; a note for each."""
    notes: list[str] = []
    old = data["general"]["name"]
    if name != old:
        lines = text.split("\n")
        at = key_lines(text.removeprefix(_BOM))["general", "name"] - 1
        lines[at] = re.sub(rf"""(["'])({re.escape(old)})\1""", json.dumps(name), lines[at], count=1)
        text = "\n".join(lines)
        notes.append(f"[general] name = {json.dumps(name)}: a name has dashes, its package {old!r}")
    for before, after in legacy.RENAMED.items():
        new = re.sub(rf"""(["']){before}\1""", json.dumps(after), text)
        notes += [f"{before} is {after}"] if new != text else []
        text = new
    return text, notes


def _with_backends(text: str, backends: Mapping[str, str]) -> str:
    """Name the backend of sections of edition 1, in the place of their language if they have one."""
    lines = text.split("\n")
    line_of = key_lines(text)
    for name in sorted(backends, key=lambda name: line_of["kernel", name], reverse=True):
        line = line_of.get(("kernel", name, "language"), 0)
        backend = f"backend = {json.dumps(backends[name])}"
        if line:
            lines[line - 1] = _LANGUAGE.sub(backend, lines[line - 1], count=1)
        else:
            header = line_of["kernel", name]
            end = "\r" if lines[header - 1].endswith("\r") else ""
            lines.insert(header, backend + end)
    return "\n".join(lines)


def _with_general_keys(text: str, added: dict[str, Any]) -> str:
    """Add keys to ``[general]`` after its version or, without a version, after its name."""
    lines = text.split("\n")
    line_of = key_lines(text.removeprefix(_BOM))
    after = line_of.get(("general", "version")) or line_of[("general", "name")]
    header = line_of[("general",)]
    if not _GENERAL.fullmatch(lines[header - 1].removeprefix(_BOM).rstrip()):
        return _with_tomlkit(text, added)
    end = "\r" if lines[after - 1].endswith("\r") else ""
    lines[after:after] = [f"{key} = {json.dumps(value)}{end}" for key, value in added.items()]
    return "\n".join(lines)


def _with_tomlkit(text: str, added: dict[str, Any]) -> str:
    """Add keys to a file that has ``general.name = ...`` or ``general = {...}``."""
    document = tomlkit.parse(text.removeprefix(_BOM))
    general = document["general"]
    for key, value in added.items():
        general[key] = value
    return tomlkit.dumps(document)

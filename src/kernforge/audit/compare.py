# SPDX-License-Identifier: Apache-2.0
"""Compare two builds of a variant byte for byte, and find the first difference of each file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.artifact.metadata import FILE
from kernforge.binary import elf
from kernforge.build import provenance

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kernforge.build.execute.results import ActionRecord

_SHOWN = 16
_ELF = b"\x7fELF"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """The first difference between a file of an artifact and the same file built again.

    Attributes:
        file: path of the file in the variant.
        reason: description of the difference, and of the action that made it.
        action: title of the first action whose result differs; empty if none differs.
        section: section of an object file; empty for other files.
        offset: position of the first byte that differs, in the section or in the file; None if
            one of the two files is missing.
        there: bytes of the artifact from this position, in hex.
        here: bytes of the file built again from this position, in hex.
    """

    file: str
    reason: str
    action: str = ""
    section: str = ""
    offset: int | None = None
    there: str = ""
    here: str = ""


def differences(
    there: Mapping[str, bytes],
    here: Mapping[str, bytes],
    *,
    made_there: Sequence[ActionRecord],
    made_here: Sequence[ActionRecord],
) -> tuple[FileDifference, ...]:
    """Compare the files of an artifact with those built again; shared objects come first.

    Args:
        made_there: actions of the artifact, from its statement.
        made_here: actions of the build on this machine.
    """
    names = sorted({*there, *here}, key=lambda name: (not name.endswith(".so"), name))
    return tuple(
        _difference(name, there.get(name), here.get(name), made_there, made_here)
        for name in names
        if there.get(name) != here.get(name)
    )


def without_isolation(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a variant without their records of the sandbox in which it was built."""
    changed = dict(files)
    statement = json.loads(files[provenance.FILE])
    del statement["predicate"]["buildDefinition"]["internalParameters"]["sandbox"]
    metadata = json.loads(files[FILE])
    del metadata["digest"]["files"][provenance.FILE]
    for name, document in ((provenance.FILE, statement), (FILE, metadata)):
        changed[name] = json.dumps(document, indent=1, sort_keys=True).encode()
    return changed


def first_action(there: Sequence[ActionRecord], here: Sequence[ActionRecord]) -> tuple[str, str]:
    """Title of the first action that differs, and the reason; two empty texts if none differs."""
    actions_here = {action.key: action for action in here}
    for action in there:
        action_here = actions_here.get(action.key)
        if action_here is None:
            argv = " ".join(action.argv)
            return action.title, f"{action.title!r} has another plan here: the artifact has {argv}"
        changed = [n for n, d in action.outputs.items() if action_here.outputs.get(n) != d]
        if changed:
            return action.title, f"{action.title!r} made a different {', '.join(changed)} here"
    return "", ""


def _difference(
    name: str,
    there: bytes | None,
    here: bytes | None,
    made_there: Sequence[ActionRecord],
    made_here: Sequence[ActionRecord],
) -> FileDifference:
    if there is None or here is None:
        where = "only in the artifact" if here is None else "only in what was built here"
        return FileDifference(file=name, reason=f"it is {where}")
    action, reason = "", "no action copies or writes it so"
    if name.endswith(".so"):
        action, reason = first_action(made_there, made_here)
        reason = (
            reason or "every action gave the same result, so it was changed after it was linked"
        )
    elif name in {FILE, provenance.FILE}:
        reason = "it describes the build"
    section, content_there, content_here = _section(there, here)
    offset = next(
        (i for i, (a, b) in enumerate(zip(content_there, content_here, strict=False)) if a != b),
        min(len(content_there), len(content_here)),
    )
    position = f"section {section}, byte {offset}" if section else f"byte {offset}"
    return FileDifference(
        file=name,
        reason=f"{position}: {reason}",
        action=action,
        section=section,
        offset=offset,
        there=content_there[offset : offset + _SHOWN].hex(),
        here=content_here[offset : offset + _SHOWN].hex(),
    )


def _section(there: bytes, here: bytes) -> tuple[str, bytes, bytes]:
    """The first section that differs, with its two contents; the whole files if there is none."""
    if not (there.startswith(_ELF) and here.startswith(_ELF)):
        return "", there, here
    sections_there, sections_here = elf.contents(there), elf.contents(here)
    for name in (*sections_there, *(n for n in sections_here if n not in sections_there)):
        if sections_there.get(name) != sections_here.get(name):
            return name, sections_there.get(name, b""), sections_here.get(name, b"")
    return "", there, here

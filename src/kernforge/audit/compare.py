# SPDX-License-Identifier: Apache-2.0
"""Hold two builds of one variant against each other, byte for byte, and say where they part."""

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
class Difference:
    """Where one file of an artifact is not what was built again.

    Attributes:
        file: its path in the variant.
        reason: what differs, in words, and which action made it.
        action: title of the first action whose result differs; empty when none does.
        section: of an object file; empty for other files.
        offset: of the first byte that differs, in the section or else in the file; None when one
            of the two files is missing.
        there: the artifact's bytes from there on, in hex.
        here: likewise of what was built again.
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
) -> tuple[Difference, ...]:
    """Compare an artifact with what was built again; shared objects come first.

    Args:
        there: the artifact's files.
        here: the files that were built again.
        made_there: the artifact's actions, as its statement has them.
        made_here: the actions that were run here.
    """
    names = sorted({*there, *here}, key=lambda name: (not name.endswith(".so"), name))
    return tuple(
        _difference(name, there.get(name), here.get(name), made_there, made_here)
        for name in names
        if there.get(name) != here.get(name)
    )


def without_isolation(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a variant, less what they say of the sandbox in which it was built."""
    found = dict(files)
    statement = json.loads(files[provenance.FILE])
    del statement["predicate"]["buildDefinition"]["internalParameters"]["sandbox"]
    metadata = json.loads(files[FILE])
    del metadata["digest"]["files"][provenance.FILE]
    for name, document in ((provenance.FILE, statement), (FILE, metadata)):
        found[name] = json.dumps(document, indent=1, sort_keys=True).encode()
    return found


def first_action(there: Sequence[ActionRecord], here: Sequence[ActionRecord]) -> tuple[str, str]:
    """Title of the first action that went another way, and why; two empty texts when none did."""
    known = {action.key: action for action in here}
    for action in there:
        again = known.get(action.key)
        if again is None:
            return action.title, f"{action.title!r} was planned another way here: {_argv(action)}"
        changed = [n for n, d in action.outputs.items() if again.outputs.get(n) != d]
        if changed:
            return action.title, f"{action.title!r} made another {', '.join(changed)} here"
    return "", ""


def _argv(action: ActionRecord) -> str:
    return f"there it was {' '.join(action.argv)}"


def _difference(
    name: str,
    there: bytes | None,
    here: bytes | None,
    made_there: Sequence[ActionRecord],
    made_here: Sequence[ActionRecord],
) -> Difference:
    if there is None or here is None:
        where = "only in the artifact" if here is None else "only in what was built here"
        return Difference(file=name, reason=f"it is {where}")
    action, why = "", "no action copies or writes it so"
    if name.endswith(".so"):
        action, why = first_action(made_there, made_here)
        why = why or "every action gave the same result, so it was changed after it was linked"
    elif name in {FILE, provenance.FILE}:
        why = "it describes the build"
    section, one, other = _section(there, here)
    offset = next(
        (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
        min(len(one), len(other)),
    )
    place = f"section {section}, byte {offset}" if section else f"byte {offset}"
    return Difference(
        file=name,
        reason=f"{place}: {why}",
        action=action,
        section=section,
        offset=offset,
        there=one[offset : offset + _SHOWN].hex(),
        here=other[offset : offset + _SHOWN].hex(),
    )


def _section(there: bytes, here: bytes) -> tuple[str, bytes, bytes]:
    """The first section that differs with its two contents; the whole files for what has none."""
    if not (there.startswith(_ELF) and here.startswith(_ELF)):
        return "", there, here
    one, other = elf.contents(there), elf.contents(here)
    for name in (*one, *(n for n in other if n not in one)):
        if one.get(name) != other.get(name):
            return name, one.get(name, b""), other.get(name, b"")
    return "", there, here

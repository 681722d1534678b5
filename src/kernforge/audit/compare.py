# SPDX-License-Identifier: Apache-2.0
"""Compare two builds of a variant byte for byte, and name the action that went another way."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernforge.artifact.metadata import FILE
from kernforge.builder import provenance
from kernforge.builder.execute.results import ActionRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDifference:
    """A file of an artifact that is another one when it is built again.

    Attributes:
        file: path of the file in the variant.
        reason: the action that made it differently.
        action: title of the first action whose result differs; empty if none differs.
    """

    file: str
    reason: str
    action: str = ""


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
    return FileDifference(file=name, reason=reason, action=action)

# SPDX-License-Identifier: Apache-2.0
"""Collects a plan's actions: each is made once, however many targets ask for it."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from kernforge.build.plan.graph import Action, Input
from kernforge.system import digest
from kernforge.toolchain import lockfile

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kernforge.project.targets import Target
    from kernforge.project.units import Sources
    from kernforge.toolchain.lockfile import Lock

# How actions are run, as far as it can change a result; see docs/decisions/0010.
_RECIPE = 2
_ROOT = re.compile(r"%\{([\w.+-]+)\}")


class Actions:
    """The actions of a plan, by key.

    Args:
        sources: the project's files.
        lock: the toolchain; it must have what the actions name.
    """

    def __init__(self, sources: Sources, lock: Lock) -> None:
        self._sources, self._lock = sources, lock
        self.found: dict[str, Action] = {}
        self.texts: dict[str, str] = {}

    def add(
        self,
        title: str,
        argv: Sequence[str],
        inputs: Sequence[Input],
        outputs: tuple[str, ...],
        target: Target,
    ) -> Action:
        """Add an action for a target, or the target to the action that is the same."""
        roots = tuple(sorted({r for part in argv for r in _ROOT.findall(part)} - {"threads"}))
        ordered = tuple(sorted(inputs, key=lambda i: i.path))
        key = digest.key(
            "action",
            argv=list(argv),
            inputs={i.path: i.digest for i in ordered},
            outputs=list(outputs),
            recipe=_RECIPE,
            roots={root: lockfile.identity(root, self._lock) for root in roots},
        )
        old = self.found.get(key)
        action = old or Action(
            title=title,
            argv=tuple(argv),
            inputs=ordered,
            outputs=outputs,
            roots=roots,
            key=key,
        )
        if target.name not in action.variants:
            action = replace(action, variants=(*action.variants, target.name))
        self.found[key] = action
        return action

    def file(self, path: str) -> Input:
        """A file of the project, or one that kernforge brings."""
        if path not in self._sources.digests:
            return self.text(path, self._sources.brought[path])
        return Input(path=path, origin="project", name=path, digest=self._sources.digests[path])

    def text(self, path: str, text: str) -> Input:
        """A file that the plan itself holds."""
        name = digest.sha256(text)
        self.texts[name] = text
        return Input(path=path, origin="text", name=name, digest=name)

    def made(self, action: Action, output: str, path: str) -> Input:
        """What another action makes."""
        made = digest.key("output", action=action.key, output=output)
        return Input(path=path, origin="action", name=f"{action.key}/{output}", digest=made)

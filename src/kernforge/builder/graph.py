# SPDX-License-Identifier: Apache-2.0
"""A build as data: actions, their inputs and outputs, and the variants that they make."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal, TypeAlias

from kernforge.project.targets import Target
from kernforge.project.units import Sources
from kernforge.system import digest
from kernforge.toolchain import provision
from kernforge.toolchain.lockfile import Lock

# How actions are run, as far as it can change a result; decision 5.
_RECIPE = 4
# How slim headers of torch are written.
_SLIM = 2
PLACEHOLDER = re.compile(r"%\{([\w.+-]+)\}")
"""Placeholder in an argv of a toolchain tree, or of the number of threads."""

_Content: TypeAlias = "tuple[tuple[str, ...], tuple[Input, ...], tuple[str, ...], bool]"
ActionKind: TypeAlias = Literal["cuda", "c++", "device link", "link", "stubs"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """Input file of an action.

    Attributes:
        digest: of the content; for another action's output, of that action's key and its name.
        action: key of the action whose output it is; empty for a file of the plan.
    """

    path: str
    digest: str
    action: str = ""
    output: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One run of a program.

    Attributes:
        argv: program and arguments; ``%{root}`` stands for a tree of the toolchain.
        inputs: the files that it finds, and no others.
        outputs: the files that it makes, relative to its directory.
        slim: whether it gets slim headers of torch first, and all of them where these do not
            suffice.
        key: of everything above but the kind and the title.
        source: path of the project's source that it compiles; empty for other actions.
        archs: what nvcc compiles its device code for, as ``9.0a``.
        variants: names of the targets that need it.
    """

    kind: ActionKind
    title: str
    argv: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    trees: tuple[str, ...]
    key: str
    variants: tuple[str, ...] = ()
    source: str = ""
    archs: tuple[str, ...] = ()
    slim: bool = False

    @property
    def needs(self) -> frozenset[str]:
        """Keys of the actions whose outputs it reads."""
        return frozenset(file.action for file in self.inputs if file.action)


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One variant's directory, as it will be laid out.

    Attributes:
        ops_name: op namespace, extension module and module name.
        extension: key of the link action; None without machine code.
        package: path in the variant -> path in the project.
    """

    target: Target
    ops_name: str
    extension: str | None
    archs: tuple[str, ...] | None
    package: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Actions and variants of a build.

    Attributes:
        actions: in an order in which each comes after those it needs.
        texts: generated files by digest.
        sources_id: names the sources that go into any variant.
    """

    actions: tuple[Action, ...]
    artifacts: tuple[Artifact, ...]
    texts: Mapping[str, str]
    sources_id: str
    files: Mapping[str, Path] = field(default_factory=dict)

    @property
    def trees(self) -> tuple[str, ...]:
        """Names of the toolchain trees that its actions read."""
        return tuple(sorted({name for action in self.actions for name in action.trees}))


def behind(plan: Plan, key: str) -> tuple[Action, ...]:
    """An action and its transitive inputs, in topological order.

    The order is that of each action's inputs, so it is the same whatever else the plan holds.
    """
    by_key = {action.key: action for action in plan.actions}
    ordered: dict[str, Action] = {}

    def visit(action: Action) -> None:
        for file in action.inputs:
            if file.action:
                visit(by_key[file.action])
        ordered.setdefault(action.key, action)

    visit(by_key[key])
    return tuple(ordered.values())


def trees(argv: Sequence[str]) -> tuple[str, ...]:
    """Names of the toolchain trees in an argv."""
    return tuple(
        sorted({r for part in argv for r in PLACEHOLDER.findall(part)} - {"threads", "here"})
    )


class ActionSet:
    """Collects a plan's actions, each once, however many targets ask for it.

    Args:
        sources: of the project whose files the actions read; None where they read texts alone.
    """

    def __init__(self, lock: Lock, sources: Sources | None = None) -> None:
        self._lock, self._sources = lock, sources
        self._keys: dict[_Content, str] = {}
        self.by_key: dict[str, Action] = {}
        self.texts: dict[str, str] = {}

    def add(
        self,
        title: str,
        argv: Sequence[str],
        inputs: Sequence[Input],
        outputs: tuple[str, ...],
        target: Target,
        *,
        kind: ActionKind,
        source: str = "",
        archs: Iterable[str] = (),
        slim: bool = False,
    ) -> Action:
        """Add an action for a target, or the target to the action that is the same."""
        ordered = tuple(sorted(inputs, key=lambda i: i.path))
        content = (tuple(argv), ordered, outputs, slim)
        if content not in self._keys:  # most targets share most actions
            self._keys[content] = self._key(content)
        key = self._keys[content]
        action = self.by_key.get(key) or Action(
            kind=kind,
            title=title,
            argv=tuple(argv),
            inputs=ordered,
            outputs=outputs,
            trees=trees(argv),
            key=key,
            source=source,
            archs=tuple(archs),
            slim=slim,
        )
        if target.name not in action.variants:
            action = replace(action, variants=(*action.variants, target.name))
        self.by_key[key] = action
        return action

    def _key(self, content: _Content) -> str:
        argv, inputs, outputs, slim = content
        return digest.key(
            "action",
            argv=argv,
            inputs={i.path: i.digest for i in inputs},
            outputs=outputs,
            recipe=_RECIPE,
            roots={name: provision.identity(name, self._lock) for name in trees(argv)},
            **({"slim": _SLIM} if slim else {}),
        )

    def file(self, path: str) -> Input:
        """A file of the project, or one that kernforge provides."""
        if self._sources is None:
            raise AssertionError("these actions are of no project")
        digest = self._sources.digests.get(path)
        if digest is None:
            return self.text(path, self._sources.default_headers[path])
        return Input(path=path, digest=digest)

    def text(self, path: str, text: str) -> Input:
        """A file that the plan itself holds."""
        name = digest.sha256(text)
        self.texts[name] = text
        return Input(path=path, digest=name)

    def output(self, action: Action, output: str, path: str) -> Input:
        """An output of another action."""
        identity = digest.key("output", action=action.key, output=output)
        return Input(path=path, digest=identity, action=action.key, output=output)

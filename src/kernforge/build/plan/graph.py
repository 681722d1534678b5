# SPDX-License-Identifier: Apache-2.0
"""A build as data: actions, what they read of each other, and the variants that come of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kernforge.project.targets import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A file that an action finds in its directory.

    Attributes:
        path: where, relative to the directory.
        origin: ``"project"``, ``"text"`` or ``"action"``.
        name: the project's path, the text's digest, or ``<action key>/<output>``.
        digest: of the content; for another action's output, of that action's key and its name.
    """

    path: str
    origin: str
    name: str
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One run of one program.

    Attributes:
        title: what a person calls it.
        argv: program and arguments; ``%{root}`` stands for a tree of the toolchain.
        inputs: the files that it finds, and no others.
        outputs: the files that it makes, relative to its directory.
        roots: the trees that its argv names.
        key: of everything above but the title.
        variants: names of the targets that need it.
    """

    title: str
    argv: tuple[str, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[str, ...]
    roots: tuple[str, ...]
    key: str
    variants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """One variant's directory, as it will be laid out.

    Attributes:
        target: what it is for.
        ops_name: op namespace, extension module and module name.
        extension: key of the link action; None without machine code.
        archs: architectures of its device code.
        package: path in the variant -> path in the project.
    """

    target: Target
    ops_name: str
    extension: str | None
    archs: tuple[str, ...] | None
    package: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Everything that a build will do.

    Attributes:
        actions: in an order in which each comes after those it needs.
        artifacts: what comes out.
        texts: generated files by digest.
        sources_id: names the sources that go into any variant.
    """

    actions: tuple[Action, ...]
    artifacts: tuple[Artifact, ...]
    texts: Mapping[str, str]
    sources_id: str

    @property
    def roots(self) -> tuple[str, ...]:
        """Every toolchain tree that some action reads."""
        return tuple(sorted({root for action in self.actions for root in action.roots}))


def needs(action: Action) -> set[str]:
    """Keys of the actions whose outputs an action reads."""
    return {one.name.partition("/")[0] for one in action.inputs if one.origin == "action"}


def behind(plan: Plan, key: str) -> tuple[Action, ...]:
    """An action and all that it needs, each after what it needs itself.

    The order is that of each action's inputs, so it is the same whatever else the plan holds.
    """
    by_key = {action.key: action for action in plan.actions}
    found: dict[str, Action] = {}

    def visit(one: Action) -> None:
        for each in one.inputs:
            if each.origin == "action":
                visit(by_key[each.name.partition("/")[0]])
        found.setdefault(one.key, one)

    visit(by_key[key])
    return tuple(found.values())

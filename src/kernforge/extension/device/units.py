# SPDX-License-Identifier: Apache-2.0
"""Units, their plans, and what is remembered for edits of their device code."""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from kernforge.builder.flags import OBJECT
from kernforge.builder.graph import Action, ActionSet, Plan
from kernforge.builder.results import STORE_KIND
from kernforge.extension.device import split
from kernforge.project.targets import Target
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.source.includes import Closure
from kernforge.store.local import Store
from kernforge.toolchain.lockfile import Lock

_MOST_SPLITS = 256
_MOST_OBJECTS = 8
# With TORCH_API_INCLUDE_EXTENSION_H, torch/torch.h includes torch/extension.h.
_PYTHON = ("torch/csrc/", "torch/torch.h")
_NO_PYTHON = ("torch/csrc/api/", "torch/csrc/stable/", "torch/csrc/inductor/aoti_torch/")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtensionUnit:
    """A source with what it may read.

    Attributes:
        path: in the action's directory.
        title: what a person calls it.
        texts: of every file that it may read, itself among them, by path.
    """

    path: str
    title: str = ""
    texts: Mapping[str, str]
    closure: Closure

    @property
    def is_cuda(self) -> bool:
        """Whether nvcc compiles it."""
        return self.path.endswith(CUDA_SUFFIXES)

    @property
    def reads_python(self) -> bool:
        """Whether it may read Python's headers."""
        torch = (name for name in self.closure.foreign if name.startswith(_PYTHON))
        python = any(not name.startswith(_NO_PYTHON) for name in torch)
        return self.closure.reaches_python or python


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaUnit(ExtensionUnit):
    """A CUDA source with the action that compiles it."""

    action: Action

    def object(self, store: Store) -> Path:
        """Path of its object in the store, if nvcc compiled it and it was not evicted."""
        return store.path(STORE_KIND, self.action.key) / OBJECT


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlan:
    """The plan of one module.

    Attributes:
        link: the last of its actions, whose one output is the module.
        lock: the identities of compilers and headers.
    """

    plan: Plan
    link: Action
    cuda: tuple[CudaUnit, ...]
    target: Target
    lock: Lock

    def with_objects(self, objects: Mapping[str, Action]) -> ModulePlan:
        """The same plan with other objects for the units of these paths.

        An action that reads such an object gets another key; all else stays.
        """
        actions = ActionSet(self.lock)
        now = {unit.action.key: objects[unit.path] for unit in self.cuda if unit.path in objects}
        for action in self.plan.actions:
            if action.key in now:
                continue
            inputs = [
                actions.output(now[each.action], each.output, each.path) if each.action else each
                for each in action.inputs
            ]
            now[action.key] = action
            if inputs != list(action.inputs):
                now[action.key] = actions.add(
                    action.title, action.argv, inputs, action.outputs, self.target, kind=action.kind
                )
        link = now[self.link.key]
        plan = replace(
            self.plan,
            actions=tuple({now[a.key].key: now[a.key] for a in self.plan.actions}.values()),
            artifacts=tuple(replace(each, extension=link.key) for each in self.plan.artifacts),
        )
        return replace(self, plan=plan, link=link)


class DeviceSession:
    """History of compilations, of one process of the JIT or one session of ``dev``.

    Threads may share it.
    """

    def __init__(self) -> None:
        self.split = functools.lru_cache(_MOST_SPLITS)(split.split)
        """``split.split``, which remembers: most files of a unit stay as they were."""
        self.whole_headers: defaultdict[str, set[str]] = defaultdict(set)
        """Sources that slim headers of torch did not serve, by the name of their module."""
        self.units: dict[str, deque[CudaUnit]] = {}
        """By path, the last units whose objects nvcc compiled as a whole."""
        self.last: ModulePlan | None = None
        """The plan of the last build of a project."""

    def remember(self, module: ModulePlan, store: Store) -> None:
        """Note the units of a module whose objects the store has."""
        for unit in module.cuda:
            units = self.units.setdefault(unit.path, deque(maxlen=_MOST_OBJECTS))
            known = any(unit.action.key == each.action.key for each in units)
            if not known and unit.object(store).is_file():
                units.append(unit)

# SPDX-License-Identifier: Apache-2.0
"""Exchange a module's forward, and give the original back exactly.

The exchanged forward lies in the instance, as torch allows; the class is not touched. What was
there before is remembered beside it. A deep copy is exchanged as its model is, and can be
restored. A pickled module leaves both behind: the kernel lives in this process alone, so whoever
unpickles has the class's own forward.
"""

from __future__ import annotations

from copy import deepcopy
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from kernforge.layers.report import LayerOutcome

_MEMORY = "_kernforge_forward"
_FORWARD = "forward"


class _Memory:
    """What was done to a module.

    Attributes:
        function: the forward that was put in; None if the module kept its own.
        before: the instance's own entries in the place of the new forward: one or none.
        outcome: the decision.
    """

    __slots__ = ("before", "function", "outcome")

    def __init__(
        self,
        function: Callable[..., Any] | None,
        before: dict[str, Any],
        outcome: LayerOutcome,
    ) -> None:
        self.function = function
        self.before = before
        self.outcome = outcome

    def __deepcopy__(self, memo: dict[int, Any]) -> _Memory:
        return _Memory(self.function, deepcopy(self.before, memo), self.outcome)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def outcome(module: nn.Module) -> LayerOutcome | None:
    """The decision for a module, if it is what the module still runs."""
    memory = _memory(module)
    return None if memory is None or _is_overlaid(module, memory) else memory.outcome


def is_overlaid(module: nn.Module) -> bool:
    """Whether somebody else put another forward over the one that ``exchange`` put in."""
    memory = _memory(module)
    return memory is not None and _is_overlaid(module, memory)


def exchange(module: nn.Module, function: Callable[..., Any] | None, decided: LayerOutcome) -> None:
    """Make a module run a forward, taken from any class; None is the module's own.

    A forward that somebody put over an earlier one of ours counts as the module's own.
    """
    if is_overlaid(module):
        del module.__dict__[_MEMORY]
    restore(module)
    entries = module.__dict__
    before = {_FORWARD: entries[_FORWARD]} if _FORWARD in entries and function else {}
    entries[_MEMORY] = _Memory(function, before, decided)
    if function is not None:
        entries[_FORWARD] = MethodType(function, module)


def restore(module: nn.Module) -> None:
    """Give a module back what it ran before ``exchange``; nothing if it was not exchanged."""
    memory = module.__dict__.pop(_MEMORY, None)
    if memory is not None and memory.function is not None:
        module.__dict__.pop(_FORWARD, None)
        module.__dict__.update(memory.before)


def snapshot(module: nn.Module) -> dict[str, Any]:
    """What ``exchange`` and ``restore`` change of a module."""
    return {name: module.__dict__[name] for name in (_FORWARD, _MEMORY) if name in module.__dict__}


def put_back(module: nn.Module, entries: dict[str, Any]) -> None:
    """Make a module what it was when the snapshot was taken."""
    for name in (_FORWARD, _MEMORY):
        module.__dict__.pop(name, None)
    module.__dict__.update(entries)


def _memory(module: nn.Module) -> _Memory | None:
    memory = module.__dict__.get(_MEMORY)
    return memory if isinstance(memory, _Memory) else None


def _is_overlaid(module: nn.Module, memory: _Memory) -> bool:
    if memory.function is None:
        return False
    now = module.__dict__.get(_FORWARD)
    return not (
        isinstance(now, MethodType) and now.__func__ is memory.function and now.__self__ is module
    )

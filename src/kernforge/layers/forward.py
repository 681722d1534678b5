# SPDX-License-Identifier: Apache-2.0
"""Exchange a module's forward, and restore the original exactly.

The exchanged forward is an attribute of the instance, as torch allows; the class is not changed.
The previous state is kept in another attribute. A deep copy is exchanged as its model is, and can
be restored. Pickling drops both: the kernel exists in this process alone, so an unpickled module
has the forward of its class.
"""

from __future__ import annotations

from copy import deepcopy
from types import MethodType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

    from kernforge.layers.report import LayerOutcome

_EXCHANGE = "_kernforge_forward"
_FORWARD = "forward"


class _Exchange:
    """The exchange of a module's forward.

    Attributes:
        function: the new forward; None if the module kept its own.
        before: the instance's own attribute that the new forward replaced, if it had one.
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

    def __deepcopy__(self, memo: dict[int, Any]) -> _Exchange:
        return _Exchange(self.function, deepcopy(self.before, memo), self.outcome)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def outcome(module: nn.Module) -> LayerOutcome | None:
    """The decision for a module, if it is what the module still runs."""
    exchanged = _exchange_of(module)
    return None if exchanged is None or is_overlaid(module) else exchanged.outcome


def is_overlaid(module: nn.Module) -> bool:
    """Whether other code replaced the forward that ``exchange`` set."""
    exchanged = _exchange_of(module)
    if exchanged is None or exchanged.function is None:
        return False
    now = module.__dict__.get(_FORWARD)
    return not (
        isinstance(now, MethodType)
        and now.__func__ is exchanged.function
        and now.__self__ is module
    )


def exchange(module: nn.Module, function: Callable[..., Any] | None, decided: LayerOutcome) -> None:
    """Make a module run a forward, taken from any class; None is the module's own.

    A forward with which other code replaced an earlier one of ours counts as the module's own.
    """
    if is_overlaid(module):
        del module.__dict__[_EXCHANGE]
    restore(module)
    entries = module.__dict__
    before = {_FORWARD: entries[_FORWARD]} if _FORWARD in entries and function else {}
    entries[_EXCHANGE] = _Exchange(function, before, decided)
    if function is not None:
        entries[_FORWARD] = MethodType(function, module)


def restore(module: nn.Module) -> None:
    """Restore what a module ran before ``exchange``; nothing if it was not exchanged."""
    exchanged = module.__dict__.pop(_EXCHANGE, None)
    if exchanged is not None and exchanged.function is not None:
        module.__dict__.pop(_FORWARD, None)
        module.__dict__.update(exchanged.before)


def snapshot(module: nn.Module) -> dict[str, Any]:
    """The attributes of a module that ``exchange`` and ``restore`` change."""
    return {
        name: module.__dict__[name] for name in (_FORWARD, _EXCHANGE) if name in module.__dict__
    }


def restore_snapshot(module: nn.Module, entries: dict[str, Any]) -> None:
    """Restore the attributes of a module that a snapshot has."""
    for name in (_FORWARD, _EXCHANGE):
        module.__dict__.pop(name, None)
    module.__dict__.update(entries)


def _exchange_of(module: nn.Module) -> _Exchange | None:
    exchanged = module.__dict__.get(_EXCHANGE)
    return exchanged if isinstance(exchanged, _Exchange) else None

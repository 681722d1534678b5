# SPDX-License-Identifier: Apache-2.0
"""Replace layers of a model by kernels, and restore them.

Every decision is made and every kernel loaded before the first forward is exchanged, so an error
leaves the model unchanged.

The exchanged forward is an attribute of the instance, as torch allows; the class is not changed.
The previous state is kept in another attribute. A deep copy is exchanged as its model is, and can
be restored. Pickling drops both: the kernel exists in this process alone, so an unpickled module
has the forward of its class.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from types import MethodType
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError
from kernforge.layers.decide import decide_layer, new_request
from kernforge.layers.modes import Device, KernelizeFallback, Mode
from kernforge.layers.report import KernelizeReport, LayerOutcome
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    import torch
    from torch import nn

_EXCHANGE = "_kernforge_forward"
_FORWARD = "forward"
_log = logging.getLogger("kernforge")


def kernelize(
    model: nn.Module,
    *,
    mode: Mode,
    device: str | torch.device | Device | None = None,
    use_fallback: bool | KernelizeFallback = True,
) -> nn.Module:
    """Replace the layers of a model that are marked and mapped by kernels.

    The modules stay, with their parameters and their class; only what their ``forward`` runs is
    exchanged. Kernelizing again starts from the original forwards. ``DISABLE_KERNEL_MAPPING=1``
    in the environment gives all of them back.

    Args:
        model: the model; it is changed in place.
        mode: ``INFERENCE`` or ``TRAINING``, with ``| TORCH_COMPILE`` if it will be compiled.
        device: a device type, a ``torch.device`` or a ``Device``; None takes that of the first
            parameter.
        use_fallback: the cases in which a layer may keep its own forward; True is
            ``KernelizeFallback.DEFAULT``, False is ``NONE``.

    Returns:
        The same model.

    Raises:
        LayerError: the mode or the device is impossible, or a layer has no kernel in a case that
            may not fall back. No layer was changed, as with every error here.
        LayerTypeError: a kernel's layer cannot stand in for the model's.
        KernforgeError: what loading a kernel raises.
    """
    request = new_request(model, mode, device, use_fallback, Environment.live())
    decided = [
        (module, *decide_layer(module, path, request)) for path, module in _marked_modules(model)
    ]
    for module, forward, result in decided:
        _exchange(module, forward, result)
    names = {result.layer_name for _, _, result in decided}
    if unmapped := sorted(names - set(request.registered)):
        _log.warning("no kernel mapping names %s", ", ".join(unmapped))
    return model


def unkernelize(model: nn.Module) -> nn.Module:
    """Restore exactly what the layers of a model ran before ``kernelize``.

    Returns:
        The same model.

    Raises:
        LayerError: other code replaced the forward of a kernel, and removing the kernel would
            remove that too. No layer was changed.
    """
    modules = list(_marked_modules(model))
    if overlaid := [path or "(the model)" for path, module in modules if _is_overlaid(module)]:
        raise LayerError(
            f"the forward of {', '.join(overlaid)} was exchanged again after kernelize",
            hint="undo that first; hooks of accelerate: remove_hook_from_module",
        )
    for _, module in modules:
        _restore(module)
    return model


@contextmanager
def kernelized(
    model: nn.Module,
    *,
    mode: Mode,
    device: str | torch.device | Device | None = None,
    use_fallback: bool | KernelizeFallback = True,
) -> Iterator[nn.Module]:
    """Kernelize a model for the duration of a ``with`` block.

    At the end each layer runs what it ran before, whether its own forward or an earlier kernel.

    The arguments and errors are those of ``kernelize``.
    """
    changed = (_FORWARD, _EXCHANGE)
    before = [
        (module, {name: module.__dict__[name] for name in changed if name in module.__dict__})
        for _, module in _marked_modules(model)
    ]
    try:
        yield kernelize(model, mode=mode, device=device, use_fallback=use_fallback)
    finally:
        for module, entries in before:
            for name in changed:
                module.__dict__.pop(name, None)
            module.__dict__.update(entries)


def kernelize_report(model: nn.Module) -> KernelizeReport:
    """What ``kernelize`` decided for each marked layer of a model, and why; see its ``str``."""
    return KernelizeReport(
        layers=tuple(_outcome(path, module) for path, module in _marked_modules(model))
    )


def _outcome(path: str, module: Any) -> LayerOutcome:
    exchanged = _exchange_of(module)
    if exchanged is not None and not _is_overlaid(module):
        return replace(exchanged.outcome, path=path)
    reason = "not kernelized" if exchanged is None else "other code replaced its forward"
    name = str(module.kernel_layer_name)
    return LayerOutcome(path=path, layer_name=name, replaced=False, reason=reason)


def _marked_modules(model: nn.Module) -> Iterator[tuple[str, Any]]:
    """Each marked module once, and each marked function that a module calls, with its path."""
    seen: set[int] = set()
    for path, module in model.named_modules():
        functions = getattr(module, "_kernel_funcs", {})
        inside = [(f"{path}.{name}".lstrip("."), each) for name, each in functions.items()]
        for where, each in [*inside, (path, module)]:
            if hasattr(type(each), "kernel_layer_name") and id(each) not in seen:
                seen.add(id(each))
                yield where, each


class _Exchange:
    """The exchange of a module's forward.

    Args:
        function: the new forward; None if the module kept its own.
        before: the instance's own attribute that the new forward replaced, if it had one.
        outcome: the decision.
    """

    def __init__(
        self, function: Callable[..., Any] | None, before: dict[str, Any], outcome: LayerOutcome
    ) -> None:
        self.function, self.before, self.outcome = function, before, outcome

    def __deepcopy__(self, memo: dict[int, Any]) -> _Exchange:
        return _Exchange(self.function, deepcopy(self.before, memo), self.outcome)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _exchange_of(module: nn.Module) -> _Exchange | None:
    exchanged = module.__dict__.get(_EXCHANGE)
    return exchanged if isinstance(exchanged, _Exchange) else None


def _is_overlaid(module: nn.Module) -> bool:
    """Whether other code replaced the forward that ``_exchange`` set."""
    exchanged = _exchange_of(module)
    if exchanged is None or exchanged.function is None:
        return False
    return bool(module.__dict__.get(_FORWARD) != MethodType(exchanged.function, module))


def _exchange(
    module: nn.Module, function: Callable[..., Any] | None, decided: LayerOutcome
) -> None:
    """Make a module run a forward, taken from any class; None is the module's own.

    A forward with which other code replaced an earlier one of ours counts as the module's own.
    """
    entries = module.__dict__
    if _is_overlaid(module):
        del entries[_EXCHANGE]
    _restore(module)
    before = {_FORWARD: entries[_FORWARD]} if _FORWARD in entries and function else {}
    entries[_EXCHANGE] = _Exchange(function, before, decided)
    if function is not None:
        entries[_FORWARD] = MethodType(function, module)


def _restore(module: nn.Module) -> None:
    """Restore what a module ran before ``_exchange``; nothing if it was not exchanged."""
    exchanged = module.__dict__.pop(_EXCHANGE, None)
    if exchanged is not None and exchanged.function is not None:
        module.__dict__.pop(_FORWARD, None)
        module.__dict__.update(exchanged.before)

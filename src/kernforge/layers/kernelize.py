# SPDX-License-Identifier: Apache-2.0
"""Replace layers of a model by kernels, and restore them.

Every decision is made and every kernel loaded before the first forward is exchanged, so an error
leaves the model unchanged.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError
from kernforge.layers.decide import decide_layer, new_request
from kernforge.layers.forward import (
    exchange,
    is_overlaid,
    outcome,
    restore,
    restore_snapshot,
    snapshot,
)
from kernforge.layers.report import KernelizeReport, LayerOutcome
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from torch import nn

    from kernforge.layers.modes import Device, KernelizeFallback, Mode

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
        exchange(module, forward, result)
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
    if overlaid := [path or "(the model)" for path, module in modules if is_overlaid(module)]:
        raise LayerError(
            f"the forward of {', '.join(overlaid)} was exchanged again after kernelize",
            hint="undo that first; hooks of accelerate: remove_hook_from_module",
        )
    for _, module in modules:
        restore(module)
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
    before = [(module, snapshot(module)) for _, module in _marked_modules(model)]
    try:
        yield kernelize(model, mode=mode, device=device, use_fallback=use_fallback)
    finally:
        for module, entries in before:
            restore_snapshot(module, entries)


def kernelize_report(model: nn.Module) -> KernelizeReport:
    """What ``kernelize`` decided for each marked layer of a model, and why; see its ``str``."""
    return KernelizeReport(
        layers=tuple(_outcome(path, module) for path, module in _marked_modules(model))
    )


def _outcome(path: str, module: nn.Module) -> LayerOutcome:
    decision = outcome(module)
    name = str(type(module).kernel_layer_name)
    if decision is None:
        reason = "other code replaced its forward" if is_overlaid(module) else "not kernelized"
        return LayerOutcome(path=path, layer_name=name, replaced=False, reason=reason)
    return replace(decision, path=path)


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

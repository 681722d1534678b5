# SPDX-License-Identifier: Apache-2.0
"""Mark layers as replaceable, replace those of a model by kernels, and restore them.

The marks are those of the ``kernels`` client 0.17.2, so that each kernelizes models of the other.

Every decision is made and every kernel loaded before the first forward is replaced, so an error
leaves the model unchanged.

The new forward is an attribute of the instance, as torch allows; the class is not changed. The
previous state is kept in another attribute. A deep copy runs what its model runs, and can be
restored. Pickling drops both: the kernel exists in this process alone, so an unpickled module has
the forward of its class.
"""

from __future__ import annotations

import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from types import MethodType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.decide import KernelizeReport, KernelizeRequest, LayerOutcome, decide_layer
from kernforge.layers.mapping import DEVICE_TYPES, KernelizeFallback, Mode, current
from kernforge.layers.repositories import function_layer
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    import torch
    from torch import nn

_PATCH = "_kernforge_forward"
_FORWARD = "forward"

Condition: TypeAlias = "Callable[[nn.Module], bool]"
"""Whether an instance may be replaced; called by ``kernelize``."""

_Class = TypeVar("_Class", bound=type)


def replace_kernel_forward_from_hub(
    cls: type[nn.Module], layer_name: str, condition: Condition | None = None
) -> None:
    """Mark a class of another package; for your own, use ``use_kernel_forward_from_hub``.

    Args:
        cls: the class; all its instances can be replaced from now on.
        layer_name: the name to look up in mappings.
        condition: whether an instance may be replaced; None is always.
    """
    marked: Any = cls
    marked.kernel_layer_name = layer_name
    # Static, so that access through an instance does not bind it.
    marked.kernel_condition = staticmethod(condition or (lambda _module: True))


def use_kernel_forward_from_hub(
    layer_name: str, condition: Condition | None = None
) -> Callable[[Any], Any]:
    """Mark a layer class, or a function, as one that a kernel may replace.

    A function becomes a module that is called as the function was; ``use_kernelized_func`` tells
    ``kernelize`` which layers call it. All of them call the one module, so replacing it for one
    model replaces it for each. The arguments are those of ``replace_kernel_forward_from_hub``.

    Raises:
        LayerTypeError: the decorated object is neither a class nor a function.
    """

    def decorate(target: Any) -> Any:
        if inspect.isclass(target):
            replace_kernel_forward_from_hub(target, layer_name, condition)
            return target
        if inspect.isfunction(target):
            return _function_module(target, layer_name, condition)
        raise LayerTypeError(
            "@use_kernel_forward_from_hub can only be applied to classes or functions"
        )

    return decorate


def _function_module(function: Any, layer_name: str, condition: Condition | None) -> nn.Module:
    base: Any = function_layer(function)

    class Func(base):  # type: ignore[misc]
        """A function as a module; copied and pickled by its name, as a function is."""

        def __reduce__(self) -> str:
            return str(function.__qualname__)

    Func.__module__ = function.__module__
    replace_kernel_forward_from_hub(Func, layer_name, condition)
    module: nn.Module = functools.update_wrapper(Func(), function, updated=())
    return module


def use_kernel_func_from_hub(func_name: str) -> Callable[[Any], Any]:
    """``use_kernel_forward_from_hub`` by its older name."""
    return use_kernel_forward_from_hub(func_name)


def use_kernelized_func(*args: Any) -> Callable[[_Class], _Class]:
    """Tell ``kernelize`` that a layer class calls functions that may be replaced.

    Args:
        args: functions that ``use_kernel_forward_from_hub`` decorated.

    Raises:
        LayerError: one of them is not.
    """
    for function in args:
        if not hasattr(function, "kernel_layer_name"):
            name = getattr(function, "__name__", function)
            raise LayerError(
                f"Function `{name}` is not decorated with @use_kernel_forward_from_hub and cannot "
                "be used with @use_kernelized_func"
            )

    def decorate(cls: _Class) -> _Class:
        original: Any = cls.__init__  # type: ignore[misc]

        @functools.wraps(original)
        def init(self: nn.Module, *given: Any, **named: Any) -> None:
            original(self, *given, **named)
            # In the dict itself: as an attribute each would become a submodule.
            attached = self.__dict__.setdefault("_kernel_funcs", {})
            for function in args:
                attached[getattr(function, "__name__", function.kernel_layer_name)] = function

        cls.__init__ = init  # type: ignore[misc]
        return cls

    return decorate


def kernelize(
    model: nn.Module,
    *,
    mode: Mode,
    device: str | torch.device | None = None,
    use_fallback: bool | KernelizeFallback = True,
) -> nn.Module:
    """Replace the layers of a model that are marked and mapped by kernels.

    The modules stay, with their parameters and their class; only what their ``forward`` runs is
    replaced. Kernelizing again starts from the original forwards. ``DISABLE_KERNEL_MAPPING=1``
    in the environment gives all of them back.

    Args:
        model: the model; it is changed in place.
        mode: ``INFERENCE`` or ``TRAINING``, with ``| TORCH_COMPILE`` if it will be compiled.
        device: a device type or a ``torch.device``; None takes that of the first parameter.
        use_fallback: the cases in which a layer may keep its own forward; True is
            ``KernelizeFallback.DEFAULT``, False is ``NONE``.

    Returns:
        The same model.

    Raises:
        LayerError: the mode or the device is impossible, or a layer has no kernel in a case that
            may not fall back. No layer was changed, as with every error here.
        LayerTypeError: a kernel's layer cannot replace the model's.
        KernforgeError: a kernel cannot be loaded.
    """
    request = _new_request(model, mode, device, use_fallback)
    decided = [
        (module, *decide_layer(module, path, request)) for path, module in _marked_modules(model)
    ]
    for module, forward, outcome in decided:
        _patch(module, forward, outcome)
    names = {outcome.layer_name for _, _, outcome in decided}
    logger = logging.getLogger("kernforge")
    if unmapped := sorted(names - set(request.registered)):
        logger.warning("no kernel mapping names %s", ", ".join(unmapped))
    if names and request.device not in DEVICE_TYPES:
        logger.warning(
            "the device is %s, which has no kernels: every layer keeps its own forward; give "
            "kernelize the device that the model will run on, as device='cuda'",
            request.device,
        )
    return model


def unkernelize(model: nn.Module) -> nn.Module:
    """Restore the forwards that the layers of a model had before ``kernelize``.

    Returns:
        The same model.

    Raises:
        LayerError: other code replaced the forward of a kernel, and removing the kernel would
            remove that too. No layer was changed.
    """
    modules = list(_marked_modules(model))
    if overlaid := [path or "(the model)" for path, module in modules if _is_overlaid(module)]:
        raise LayerError(
            f"the forward of {', '.join(overlaid)} was replaced by other code after kernelize",
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
    device: str | torch.device | None = None,
    use_fallback: bool | KernelizeFallback = True,
) -> Iterator[nn.Module]:
    """Kernelize a model for the duration of a ``with`` block.

    At the end each layer has its previous forward again: its own, or that of an earlier kernel.

    The arguments and errors are those of ``kernelize``.
    """
    changed = (_FORWARD, _PATCH)
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
    """The decision of ``kernelize`` for each marked layer, with its reason; a table as ``str``."""
    return KernelizeReport(
        layers=tuple(_outcome(path, module) for path, module in _marked_modules(model))
    )


def _outcome(path: str, module: Any) -> LayerOutcome:
    patch = _patch_of(module)
    if patch is not None and not _is_overlaid(module):
        return replace(patch.outcome, path=path)
    reason = "not kernelized" if patch is None else "other code replaced its forward"
    name = str(module.kernel_layer_name)
    return LayerOutcome(path=path, layer_name=name, replaced=False, reason=reason)


def _new_request(
    model: nn.Module,
    mode: Mode,
    device: str | torch.device | None,
    use_fallback: bool | KernelizeFallback,  # noqa: FBT001 - the client's type
) -> KernelizeRequest:
    if mode == Mode.FALLBACK:
        raise LayerError("Mode.FALLBACK can only be used to register kernel mappings.")
    if Mode.INFERENCE not in mode and Mode.TRAINING not in mode:
        raise LayerError("kernelize mode must contain Mode.INFERENCE or Mode.TRAINING.")
    if isinstance(use_fallback, bool):
        use_fallback = KernelizeFallback.DEFAULT if use_fallback else KernelizeFallback.NONE
    disabled = Environment.live().disable_kernel_mapping or "0"
    if not disabled.isdecimal():
        raise LayerError(f"DISABLE_KERNEL_MAPPING is {disabled!r}", hint="write 0 or 1")
    device_type, index = _device(model, device)
    return KernelizeRequest(
        mode=mode,
        device=device_type,
        capability=_capability(index) if device_type in {"cuda", "rocm"} else None,
        fallback=use_fallback,
        registered=current(),
        disabled=int(disabled) != 0,
    )


def _device(model: nn.Module, device: str | torch.device | None) -> tuple[str, int | None]:
    """The device's type as mappings name it, and the GPU's index where it is known."""
    if isinstance(device, str):
        if device not in DEVICE_TYPES:
            raise LayerError(
                f"Unsupported device type '{device}'. Supported device types are: "
                f"{', '.join(DEVICE_TYPES)}"
            )
        return device, None
    if device is not None:
        return device.type, device.index
    first = next(model.parameters(), None)
    if first is None:
        raise LayerError(
            "Cannot determine model device, provide as `device` argument to `kernelize`."
        )
    import torch

    is_rocm = first.device.type == "cuda" and torch.version.hip is not None
    return "rocm" if is_rocm else first.device.type, first.device.index


def _capability(index: int | None) -> int | None:
    import torch

    if not torch.cuda.is_available():
        return None
    major, minor = torch.cuda.get_device_capability(index)
    return int(major) * 10 + int(minor)


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


@dataclass(frozen=True, slots=True)
class _Patch:
    """The state of a kernelized module.

    Attributes:
        function: the new forward; None if the module kept its own.
        before: the instance's own attribute that the new forward replaced, if it had one.
    """

    function: Callable[..., Any] | None
    before: dict[str, Any]
    outcome: LayerOutcome

    def __deepcopy__(self, memo: dict[int, Any]) -> _Patch:
        return replace(self, before=deepcopy(self.before, memo))

    def __reduce__(self) -> tuple[Any, ...]:
        return type(None), ()


def _patch_of(module: nn.Module) -> _Patch | None:
    patch = module.__dict__.get(_PATCH)
    return patch if isinstance(patch, _Patch) else None


def _is_overlaid(module: nn.Module) -> bool:
    """Whether other code replaced the forward that ``_patch`` set."""
    patch = _patch_of(module)
    if patch is None or patch.function is None:
        return False
    return bool(module.__dict__.get(_FORWARD) != MethodType(patch.function, module))


def _patch(module: nn.Module, function: Callable[..., Any] | None, outcome: LayerOutcome) -> None:
    """Make a module run a forward, taken from any class; None is the module's own.

    A forward with which other code replaced an earlier one of ours counts as the module's own.
    """
    entries = module.__dict__
    if _is_overlaid(module):
        del entries[_PATCH]
    _restore(module)
    before = {_FORWARD: entries[_FORWARD]} if _FORWARD in entries and function else {}
    entries[_PATCH] = _Patch(function, before, outcome)
    if function is not None:
        entries[_FORWARD] = MethodType(function, module)


def _restore(module: nn.Module) -> None:
    """Restore the forward that ``_patch`` replaced; nothing if the module was not kernelized."""
    patch = module.__dict__.pop(_PATCH, None)
    if patch is not None and patch.function is not None:
        module.__dict__.pop(_FORWARD, None)
        module.__dict__.update(patch.before)

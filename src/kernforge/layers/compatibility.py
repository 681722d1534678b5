# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel's layer can stand in for a model's, and layers that are made of functions.

Only ``forward`` is taken from a kernel's layer, and bound to the model's own module; so the layer
must hold no state, and must take what the replaced ``forward`` takes. Two class attributes say
what it can do: ``can_torch_compile`` (else False) and ``has_backward`` (else True).
"""

from __future__ import annotations

import functools
import inspect
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.modes import Mode, mode_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_CLAIMS = {"can_torch_compile", "has_backward"}


def check_layer(layer: object, replaced: type[nn.Module], *, source: object) -> None:
    """Refuse a layer that cannot stand in for another.

    Args:
        layer: what the kernel gave.
        replaced: the class of the model's module.
        source: where the layer comes from, for messages.

    Raises:
        LayerTypeError: it is no ``nn.Module``, it has a constructor or members of its own, or its
            ``forward`` takes other parameters.
    """
    from torch import nn  # noqa: PLC0415 - imported late, as everywhere

    if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
        name = getattr(layer, "__name__", layer)
        raise LayerTypeError(f"Layer `{name}` of {source} is not a Torch layer.")
    if inspect.getattr_static(layer, "__init__") is not nn.Module.__init__:
        raise LayerTypeError(
            f"{source} must not override nn.Module constructor.",
            hint="the constructor would never run: only forward is taken from a kernel's layer",
        )
    # An empty subclass also has what Python itself adds to classes.
    allowed = {*dir(type("Empty", (nn.Module,), {})), *_CLAIMS}
    if more := sorted(set(dir(layer)) - allowed):
        raise LayerTypeError(
            f"{source} must not contain additional members compared to `{replaced.__name__}`: "
            f"{', '.join(more)}.",
            hint="only forward is taken from a kernel's layer; write helpers as functions",
        )
    _check_parameters(layer, replaced, source)


def _check_parameters(layer: type[nn.Module], replaced: type[nn.Module], source: object) -> None:
    ours = list(inspect.signature(layer.forward).parameters.values())
    theirs = list(inspect.signature(replaced.forward).parameters.values())
    what = f"Forward signature of {source} does not match `{replaced.__name__}`"
    if len(ours) != len(theirs):
        raise LayerTypeError(
            f"{what}: different number of arguments.",
            hint=f"{_listed(ours)} stands against {_listed(theirs)}",
        )
    for our, their in zip(ours, theirs, strict=True):
        if our.kind != their.kind:
            raise LayerTypeError(
                f"{what}: different kind of arguments ({our} is {our.kind.description}, {their} "
                f"is {their.kind.description})."
            )


def _listed(parameters: list[Parameter]) -> str:
    return f"({', '.join(map(str, parameters))})"


def lacking(layer: type[nn.Module], mode: Mode) -> str:
    """What a layer lacks for a mode, as ``torch.compile`` or ``backward``; empty if nothing."""
    lacks = []
    if Mode.TRAINING in mode and not getattr(layer, "has_backward", True):
        lacks.append("backward")
    if Mode.TORCH_COMPILE in mode and not getattr(layer, "can_torch_compile", False):
        lacks.append("torch.compile")
    return " and ".join(lacks)


def check_promise(layer: type[nn.Module], mode: Mode, *, layer_name: str, source: object) -> None:
    """Hold a layer against the mode that it was registered for.

    Raises:
        LayerError: it lacks what the mode needs.
    """
    if lacks := lacking(layer, mode):
        raise LayerError(
            f"Function/layer from repo {source} does not support {lacks}.\n"
            f"Was registered for `{layer_name}` with mode `{mode}`",
            hint=f"register it for another mode than {mode_name(mode)}, or, if it can, have the "
            "kernel's layer say so: can_torch_compile = True, has_backward = True",
        )


@functools.cache
def layer_of(function: Callable[..., Any]) -> type[nn.Module]:
    """A layer whose forward calls a function and takes what the function takes.

    Its claims are the function's attributes of the same name.
    """
    from torch import nn  # noqa: PLC0415 - imported late, as everywhere

    base: Any = nn.Module

    class Func(base):  # type: ignore[misc]
        can_torch_compile = getattr(function, "can_torch_compile", False)
        has_backward = getattr(function, "has_backward", True)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    signature = inspect.signature(function)
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += signature.parameters.values()
    Func.forward.__signature__ = Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=signature.return_annotation
    )
    Func.__module__ = function.__module__
    return Func

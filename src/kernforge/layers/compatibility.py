# SPDX-License-Identifier: Apache-2.0
"""Whether a kernel's layer can replace a model's, and layers that call functions.

Only ``forward`` is taken from a kernel's layer, and bound to the model's own module; so the layer
must hold no state, and must take the arguments of the replaced ``forward``. Two class attributes
say what it supports: ``can_torch_compile`` (default False) and ``has_backward`` (default True).
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

_FEATURES = {"can_torch_compile", "has_backward"}


def check_layer(layer: object, replaced: type[nn.Module], *, source: object) -> None:
    """Refuse a layer that cannot replace another.

    Args:
        layer: the kernel's attribute of that name.
        replaced: the class of the model's module.

    Raises:
        LayerTypeError: it is not an ``nn.Module``, it has a constructor or members of its own, or
            its ``forward`` takes other parameters.
    """
    from torch import nn

    if not (isinstance(layer, type) and issubclass(layer, nn.Module)):
        name = getattr(layer, "__name__", layer)
        raise LayerTypeError(f"Layer `{name}` of {source} is not a Torch layer.")
    if inspect.getattr_static(layer, "__init__") is not nn.Module.__init__:
        raise LayerTypeError(
            f"{source} must not override nn.Module constructor.",
            hint="the constructor would never run: only forward is taken from a kernel's layer",
        )
    # An empty subclass also has the attributes that Python adds to classes.
    allowed = {*dir(type("Empty", (nn.Module,), {})), *_FEATURES}
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
            hint=f"the kernel's forward takes {_listed(ours)}, the model's {_listed(theirs)}",
        )
    for our, their in zip(ours, theirs, strict=True):
        if our.kind != their.kind:
            raise LayerTypeError(
                f"{what}: different kind of arguments ({our} is {our.kind.description}, {their} "
                f"is {their.kind.description})."
            )


def _listed(parameters: list[Parameter]) -> str:
    return f"({', '.join(map(str, parameters))})"


def missing_features(layer: type[nn.Module], mode: Mode) -> str:
    """Features that a mode needs and a layer lacks, such as ``backward``; empty if none."""
    missing = []
    if Mode.TRAINING in mode and not getattr(layer, "has_backward", True):
        missing.append("backward")
    if Mode.TORCH_COMPILE in mode and not getattr(layer, "can_torch_compile", False):
        missing.append("torch.compile")
    return " and ".join(missing)


def check_mode(layer: type[nn.Module], mode: Mode, *, layer_name: str, source: object) -> None:
    """Check that a layer supports the mode that it was registered for."""
    if missing := missing_features(layer, mode):
        raise LayerError(
            f"Function/layer from repo {source} does not support {missing}.\n"
            f"Was registered for `{layer_name}` with mode `{mode}`",
            hint=f"register it for another mode than {mode_name(mode)}; or, if the layer supports "
            "it, set can_torch_compile = True or has_backward = True in its class",
        )


@functools.cache
def function_layer(function: Callable[..., Any]) -> type[nn.Module]:
    """A layer whose forward calls a function and takes what the function takes.

    What it supports is said by the function's attributes of the same names.
    """
    from torch import nn

    base: Any = nn.Module

    class FunctionLayer(base):  # type: ignore[misc]
        can_torch_compile = getattr(function, "can_torch_compile", False)
        has_backward = getattr(function, "has_backward", True)

        def forward(self, *args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

    signature = inspect.signature(function)
    parameters = [Parameter("self", Parameter.POSITIONAL_OR_KEYWORD)]
    parameters += signature.parameters.values()
    FunctionLayer.forward.__signature__ = Signature(  # type: ignore[attr-defined]
        parameters, return_annotation=signature.return_annotation
    )
    FunctionLayer.__module__ = function.__module__
    return FunctionLayer

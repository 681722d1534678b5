# SPDX-License-Identifier: Apache-2.0
"""Mark layer classes, and functions that they call, as replaceable by ``kernelize``.

The marks are attributes of the ``kernels`` client 0.17.2: models marked with either are kernelized
by both.
"""

from __future__ import annotations

import functools
import inspect
from inspect import Parameter
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from kernforge.errors import LayerError, LayerTypeError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

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
    model replaces it for each.

    Args:
        layer_name: the name to look up in mappings.
        condition: whether an instance may be replaced; None is always.

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


@functools.cache
def function_layer(function: Callable[..., Any]) -> type[nn.Module]:
    """A layer whose forward calls a function, with the function's signature and features."""
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
    forward: Any = FunctionLayer.forward
    forward.__signature__ = signature.replace(parameters=parameters)
    FunctionLayer.__module__ = function.__module__
    return FunctionLayer

# SPDX-License-Identifier: Apache-2.0
"""What one layer of a model runs: a kernel, or its own forward.

Only ``forward`` is taken from a kernel's layer, and bound to the model's own module; so the layer
must hold no state, and must take the arguments of the replaced ``forward``. Two class attributes
say what it supports: ``can_torch_compile`` (default False) and ``has_backward`` (default True).
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError, LayerTypeError, NetworkError, NotPublishedError
from kernforge.layers.mapping import Choice, Registered, Repository, choose_kernel, current
from kernforge.layers.modes import DEVICE_TYPES, Device, KernelizeFallback, Mode, mode_name
from kernforge.layers.report import KernelSource, LayerOutcome
from kernforge.layers.repositories import load_on
from kernforge.loader.importer import get_loaded_kernels
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    import torch
    from torch import nn

# What CANNOT_LOAD covers: there is nothing to load. A kernel that exists but is wrong, such as one
# whose bytes were changed, stays an error.
_ABSENT = (FileNotFoundError, NotPublishedError, NetworkError)
_FEATURES = {"can_torch_compile", "has_backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelizeRequest:
    """What a model is kernelized for.

    Attributes:
        capability: its GPU's compute capability as 10 * major + minor; None without one.
        fallback: the cases in which a layer may keep its own forward.
        disabled: whether every layer keeps its own forward.
        layers: the layers that were loaded so far.
    """

    mode: Mode
    device: str
    capability: int | None
    fallback: KernelizeFallback
    registered: Registered
    disabled: bool
    layers: dict[Repository, type[nn.Module]] = field(default_factory=dict)


def new_request(
    model: nn.Module,
    mode: Mode,
    device: str | torch.device | Device | None,
    use_fallback: bool | KernelizeFallback,  # noqa: FBT001 - the client's type
    environment: Environment,
) -> KernelizeRequest:
    """Check the arguments of ``kernelize``, and find the device where none was given.

    Raises:
        LayerError: the mode or the device is impossible, or the device cannot be known.
    """
    if mode == Mode.FALLBACK:
        raise LayerError("Mode.FALLBACK can only be used to register kernel mappings.")
    if Mode.INFERENCE not in mode and Mode.TRAINING not in mode:
        raise LayerError("kernelize mode must contain Mode.INFERENCE or Mode.TRAINING.")
    if isinstance(use_fallback, bool):
        use_fallback = KernelizeFallback.DEFAULT if use_fallback else KernelizeFallback.NONE
    device_type, index = _device(model, device)
    return KernelizeRequest(
        mode=mode,
        device=device_type,
        capability=_capability(index) if device_type in {"cuda", "rocm"} else None,
        fallback=use_fallback,
        registered=current(),
        disabled=_disabled(environment.disable_kernel_mapping),
    )


def _disabled(text: str | None) -> bool:
    try:
        return text is not None and bool(int(text))
    except ValueError:
        raise LayerError(f"DISABLE_KERNEL_MAPPING is {text!r}", hint="write 0 or 1") from None


def _device(model: nn.Module, device: str | torch.device | Device | None) -> tuple[str, int | None]:
    """The device's type as mappings name it, and the GPU's index where it is known."""
    if isinstance(device, Device):
        device = device.type
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


def decide_layer(
    module: nn.Module, path: str, request: KernelizeRequest
) -> tuple[Callable[..., Any] | None, LayerOutcome]:
    """The forward that a marked module runs, None for its own; and the decision with its reason.

    Raises:
        LayerError: it has no kernel, in a case that may not fall back.
        LayerTypeError: the kernel's layer cannot stand in for it.
        KernforgeError: what loading the kernel raises.
    """
    cls = type(module)
    name = str(cls.kernel_layer_name)
    condition = getattr(cls, "kernel_condition", None)
    choice, layer = Choice(), None
    if request.disabled:
        reason = "DISABLE_KERNEL_MAPPING is set"
    elif condition is not None and not condition(module):
        reason = "its condition refuses this instance"
    else:
        choice = choose_kernel(
            request.registered,
            name,
            device=request.device,
            capability=request.capability,
            mode=request.mode,
        )
        layer, reason = _replacement(choice, name, cls, request)
    result = LayerOutcome(
        path=path,
        layer_name=name,
        replaced=layer is not None,
        reason=reason,
        source=None if layer is None else _kernel_source(layer),
        candidates=choice.candidates,
    )
    return None if layer is None else layer.forward, result


def _replacement(
    choice: Choice, name: str, cls: type[nn.Module], request: KernelizeRequest
) -> tuple[type[nn.Module] | None, str]:
    """The chosen layer, if it can be loaded and has the features that the mode needs; and why."""
    chosen = choice.chosen
    if chosen is None:
        text = f"No layer mapping for `{name}`: {choice.reason}"
        _raise_unless_allowed(choice.missing, request, text)
        return None, choice.reason
    repo = chosen.repo
    try:
        if repo not in request.layers:
            request.layers[repo] = load_on(repo, request.device)
    except _ABSENT as error:
        if KernelizeFallback.CANNOT_LOAD not in request.fallback:
            raise
        logging.getLogger("kernforge.layers").info(
            "Kernel for layer `%s` could not be loaded; it keeps its own forward: %s", name, error
        )
        return None, f"cannot load: {str(error).splitlines()[0]}"
    layer = request.layers[repo]
    _check_layer(layer, cls, repo)
    if missing := _missing_features(layer, chosen.mode):
        raise LayerError(
            f"Function/layer from repo {repo} does not support {missing}.\n"
            f"Was registered for `{name}` with mode `{chosen.mode}`",
            hint=f"register it for another mode than {mode_name(chosen.mode)}; or, if the layer "
            "supports it, set can_torch_compile = True or has_backward = True in its class",
        )
    if missing := _missing_features(layer, request.mode):
        text = f"Available kernel does not support mode: {request.mode}"
        _raise_unless_allowed(KernelizeFallback.NO_COMPATIBLE_MODE, request, text)
        return None, f"{repo} does not support {missing}"
    return layer, f"registered for {chosen.device} {mode_name(chosen.mode)}"


def _raise_unless_allowed(case: KernelizeFallback, request: KernelizeRequest, text: str) -> None:
    if case not in request.fallback:
        raise LayerError(
            text, hint=f"with KernelizeFallback.{case.name} the layer keeps its own forward"
        )


def _kernel_source(layer: type[nn.Module]) -> KernelSource | None:
    """The loaded kernel whose package defines a layer."""
    package = layer.__module__.partition(".")[0]
    for kernel in get_loaded_kernels():
        if kernel.metadata.id == package:
            origin = kernel.repo_info
            return KernelSource(
                kernel=kernel.metadata.name,
                variant=kernel.path.name,
                repo_id=origin.repo_id if origin else None,
                commit=origin.revision if origin else None,
            )
    return None


def _check_layer(layer: Any, replaced: type[nn.Module], source: object) -> None:
    """Refuse a layer that cannot replace another.

    Args:
        layer: the kernel's attribute of that name.
        replaced: the class of the model's module.

    Raises:
        LayerTypeError: it is not an ``nn.Module``, it has a constructor or members of its own, or
            its ``forward`` takes other parameters.
    """
    from torch import nn

    is_layer = isinstance(layer, type) and issubclass(layer, nn.Module)
    if not is_layer:
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
    ours = inspect.signature(layer.forward).parameters
    theirs = inspect.signature(replaced.forward).parameters
    if [each.kind for each in ours.values()] != [each.kind for each in theirs.values()]:
        what = "number" if len(ours) != len(theirs) else "kind"
        raise LayerTypeError(
            f"Forward signature of {source} does not match `{replaced.__name__}`: different {what} "
            "of arguments.",
            hint=f"the kernel's forward takes {_listed(ours)}, the model's {_listed(theirs)}",
        )


def _listed(parameters: Mapping[str, inspect.Parameter]) -> str:
    return f"({', '.join(map(str, parameters.values()))})"


def _missing_features(layer: type[nn.Module], mode: Mode) -> str:
    """Features that a mode needs and a layer lacks, such as ``backward``; empty if none."""
    missing = []
    if Mode.TRAINING in mode and not getattr(layer, "has_backward", True):
        missing.append("backward")
    if Mode.TORCH_COMPILE in mode and not getattr(layer, "can_torch_compile", False):
        missing.append("torch.compile")
    return " and ".join(missing)

# SPDX-License-Identifier: Apache-2.0
"""The decision for each layer of a model, a kernel or its own forward; and their report.

Only ``forward`` is taken from a kernel's layer, and bound to the model's own module; so the layer
must hold no state, and must take the arguments of the replaced ``forward``. Two class attributes
say what it supports: ``can_torch_compile`` (default False) and ``has_backward`` (default True).
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError, LayerTypeError, NetworkError, NotPublishedError
from kernforge.layers.mapping import (
    KernelizeFallback,
    Mode,
    Registered,
    Repository,
    choose_kernel,
    mode_name,
)
from kernforge.layers.repositories import load_on
from kernforge.loader.importer import get_loaded_kernels
from kernforge.system.tables import table

if TYPE_CHECKING:
    from torch import nn

# The errors of CANNOT_LOAD: the kernel is unavailable. A kernel with a fault of its own, such as
# modified files, is always an error.
_ABSENT = (FileNotFoundError, NotPublishedError, NetworkError)
_FEATURES = {"can_torch_compile", "has_backward"}


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSource:
    """The loaded build that a layer came from.

    Attributes:
        kernel: the kernel's name.
        variant: the build's directory name.
        repo_id: its registry's name for it; None for a local kernel.
        commit: its commit there; None for a local kernel.
    """

    kernel: str
    variant: str
    repo_id: str | None = None
    commit: str | None = None

    def __str__(self) -> str:
        if self.repo_id is None:
            return f"{self.kernel} {self.variant}"
        return f"{self.repo_id}@{(self.commit or '')[:7]} {self.variant}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerOutcome:
    """The decision for one layer.

    Attributes:
        path: the module in the model, as ``named_modules`` names it; empty for the model itself.
        layer_name: its name in mappings.
        replaced: whether it runs a kernel.
        source: the build that it runs; None if it runs its own forward, or the repository is not
            a kernel.
    """

    path: str
    layer_name: str
    replaced: bool
    reason: str
    source: KernelSource | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelizeReport:
    """The decisions for a model, in the order of its modules; ``str`` gives them as a table."""

    layers: tuple[LayerOutcome, ...]

    @property
    def replaced(self) -> tuple[LayerOutcome, ...]:
        """The layers that run a kernel."""
        return tuple(layer for layer in self.layers if layer.replaced)

    @property
    def kept(self) -> tuple[LayerOutcome, ...]:
        """The layers that run their own forward."""
        return tuple(layer for layer in self.layers if not layer.replaced)

    def __str__(self) -> str:
        if not self.layers:
            return "no layer of this model is marked as one that a kernel may replace"
        total = f"{len(self.replaced)} of {len(self.layers)} layers run a kernel"
        return f"{table(self._rows(), head=('module', 'layer', 'runs', 'because'))}\n{total}"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        """One row for layers that differ in their numbers alone: ``layers.*.mlp (32)``."""
        paths_of: dict[tuple[str, ...], list[str]] = {}
        for layer in self.layers:
            pattern = re.sub(r"\b\d+\b", "*", layer.path)
            runs = str(layer.source or "kernel") if layer.replaced else "own forward"
            row = (pattern, layer.layer_name, runs, layer.reason)
            paths_of.setdefault(row, []).append(layer.path)
        for (pattern, *rest), paths in paths_of.items():
            name = f"{pattern} ({len(paths)})" if len(paths) > 1 else paths[0] or "(the model)"
            yield (name, *rest)


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelizeRequest:
    """The arguments of ``kernelize``, with the device and the mapping.

    Attributes:
        device: the device type, as mappings name it.
        capability: its GPU's compute capability as 10 * major + minor; None without one.
        fallback: the cases in which a layer may keep its own forward.
        layers: the layers that were loaded so far.
    """

    mode: Mode
    device: str
    capability: int | None
    fallback: KernelizeFallback
    registered: Registered
    disabled: bool
    layers: dict[Repository, type[nn.Module]] = field(default_factory=dict)

    def refuse(self, case: KernelizeFallback, text: str) -> None:
        """Raise an error where a layer may not keep its own forward."""
        if case not in self.fallback:
            hint = f"with KernelizeFallback.{case.name} the layer keeps its own forward"
            raise LayerError(text, hint=hint)


def decide_layer(
    module: nn.Module, path: str, request: KernelizeRequest
) -> tuple[Callable[..., Any] | None, LayerOutcome]:
    """The forward that a marked module runs, None for its own; and the decision with its reason."""
    cls = type(module)
    condition = getattr(cls, "kernel_condition", None)
    layer = None
    if request.disabled:
        reason = "DISABLE_KERNEL_MAPPING is set"
    elif condition is not None and not condition(module):
        reason = "its condition refuses this instance"
    else:
        layer, reason = _replacement(cls, request)
    outcome = LayerOutcome(
        path=path,
        layer_name=str(cls.kernel_layer_name),
        replaced=layer is not None,
        reason=reason,
        source=None if layer is None else _source_of(layer),
    )
    return None if layer is None else layer.forward, outcome


def _replacement(
    cls: type[nn.Module], request: KernelizeRequest
) -> tuple[type[nn.Module] | None, str]:
    """The layer of the mapping, if it can be loaded and serves the mode; and why."""
    name = str(cls.kernel_layer_name)
    device, mode = request.device, request.mode
    choice = choose_kernel(
        request.registered, name, device=device, capability=request.capability, mode=mode
    )
    repo = choice.repo
    if repo is None:
        request.refuse(choice.missing, f"No layer mapping for `{name}`: {choice.reason}")
        return None, choice.reason
    try:
        if repo not in request.layers:
            request.layers[repo] = load_on(repo, device)
    except _ABSENT as error:
        if KernelizeFallback.CANNOT_LOAD not in request.fallback:
            raise
        logging.getLogger("kernforge.layers").info(
            "Kernel for layer `%s` could not be loaded; it keeps its own forward: %s", name, error
        )
        return None, f"cannot load: {str(error).splitlines()[0]}"
    layer = request.layers[repo]
    _check_layer(layer, cls, repo)
    if missing := _missing_features(layer, choice.mode):
        raise LayerError(
            f"Function/layer from repo {repo} does not support {missing}.\n"
            f"Was registered for `{name}` with mode `{choice.mode}`",
            hint=f"register it for another mode than {mode_name(choice.mode)}; or, if the layer "
            "supports it, set can_torch_compile = True or has_backward = True in its class",
        )
    if missing := _missing_features(layer, mode):
        text = f"Available kernel does not support mode: {mode}"
        request.refuse(KernelizeFallback.NO_COMPATIBLE_MODE, text)
        return None, f"{repo} does not support {missing}"
    return layer, choice.reason


def _source_of(layer: type[nn.Module]) -> KernelSource | None:
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
    """Refuse a layer with state or with another signature than the replaced class."""
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
    if extra := sorted(set(dir(layer)) - allowed):
        raise LayerTypeError(
            f"{source} must not contain additional members compared to `{replaced.__name__}`: "
            f"{', '.join(extra)}.",
            hint="only forward is taken from a kernel's layer; write helpers as functions",
        )
    ours, theirs = map(inspect.signature, (layer.forward, replaced.forward))
    our_kinds, their_kinds = ([p.kind for p in s.parameters.values()] for s in (ours, theirs))
    if our_kinds != their_kinds:
        what = "number" if len(our_kinds) != len(their_kinds) else "kind"
        raise LayerTypeError(
            f"Forward signature of {source} does not match `{replaced.__name__}`: different {what} "
            "of arguments.",
            hint=f"the kernel's forward takes {ours}, the model's {theirs}",
        )


def _missing_features(layer: type[nn.Module], mode: Mode) -> str:
    """Features that a mode needs and a layer lacks, such as ``backward``; empty if none."""
    missing = []
    if Mode.TRAINING in mode and not getattr(layer, "has_backward", True):
        missing.append("backward")
    if Mode.TORCH_COMPILE in mode and not getattr(layer, "can_torch_compile", False):
        missing.append("torch.compile")
    return " and ".join(missing)

# SPDX-License-Identifier: Apache-2.0
"""The kernel mapping: its words, its registration, and the choice of a layer's kernel.

Names, members and rules are those of the ``kernels`` client 0.17.2 (``kernels/layer/mode.py``,
``device.py``, ``repos.py``), so that a mapping for that client works here. The order of choice is
the device type, then the narrowest range of compute capabilities that contains the GPU's, then the
modes of ``PREFERENCE``. Where the narrowest range lacks the mode, a wider one is not used instead.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Flag, auto
from typing import TYPE_CHECKING, Protocol, TypeAlias

from kernforge.errors import LayerError, LayerTypeError

if TYPE_CHECKING:
    from torch import nn

DEVICE_TYPES = ("cpu", "cuda", "mps", "neuron", "npu", "rocm", "tpu", "xpu")


class Mode(Flag):
    """The use of a kernelized model, or of a registered kernel.

    Attributes:
        FALLBACK: in a mapping only: the kernel to use when no other mode matches.
        TRAINING: forward and backward.
        INFERENCE: forward alone.
        TORCH_COMPILE: under ``torch.compile``; combined with one of the two before.
    """

    _NONE = 0
    FALLBACK = auto()
    TRAINING = auto()
    INFERENCE = auto()
    TORCH_COMPILE = auto()

    def __or__(self, other: Mode) -> Mode:
        """Combine two modes.

        Raises:
            LayerError: training with inference, or FALLBACK with anything.
        """
        union = super().__or__(other)
        if Mode.INFERENCE in union and Mode.TRAINING in union:
            raise LayerError(
                "Mode.INFERENCE and Mode.TRAINING are mutually exclusive.",
                hint="a mapping may name a kernel for each: {Mode.INFERENCE: ..., "
                "Mode.TRAINING: ...}",
            )
        if Mode.FALLBACK in union and union != Mode.FALLBACK:
            raise LayerError("Mode.FALLBACK cannot be combined with other modes.")
        return union


class KernelizeFallback(Flag):
    """The cases in which a layer may keep its own forward instead of being an error.

    Attributes:
        NONE: no case.
        NO_LAYER: no mapping names the layer.
        NO_DEVICE: the mapping has nothing for the device type.
        NO_COMPATIBLE_PROPERTIES: no range of compute capabilities contains this GPU's.
        NO_COMPATIBLE_MODE: no kernel is registered for the mode, or the loaded one lacks it.
        CANNOT_LOAD: the kernel is not published, not reachable, or has no build for this machine.
        DEFAULT: every case but CANNOT_LOAD.
        ALL: every case.
    """

    NONE = 0
    NO_LAYER = auto()
    NO_DEVICE = auto()
    NO_COMPATIBLE_PROPERTIES = auto()
    NO_COMPATIBLE_MODE = auto()
    CANNOT_LOAD = auto()

    DEFAULT = NO_LAYER | NO_DEVICE | NO_COMPATIBLE_PROPERTIES | NO_COMPATIBLE_MODE
    ALL = DEFAULT | CANNOT_LOAD


@dataclass(frozen=True, slots=True)
class _Capabilities:
    """A range of compute capabilities, both ends included, as 10 * major + minor."""

    min_capability: int
    max_capability: int

    def __post_init__(self) -> None:
        if self.min_capability > self.max_capability:
            raise LayerError(
                f"min_capability ({self.min_capability}) must be <= max_capability "
                f"({self.max_capability})"
            )

    def __str__(self) -> str:
        return f"{dotted(self.min_capability)} to {dotted(self.max_capability)}"


class CUDAProperties(_Capabilities):
    """NVIDIA GPUs from ``min_capability`` to ``max_capability``, as 10 * major + minor."""


class ROCMProperties(_Capabilities):
    """AMD GPUs from ``min_capability`` to ``max_capability``, in torch's numbers: gfx942 is 94."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device type in a mapping, perhaps narrowed to some of its GPUs.

    Args:
        type: one of ``DEVICE_TYPES``.
        properties: the GPUs, as ``CUDAProperties`` for ``cuda`` or ``ROCMProperties`` for
            ``rocm``; None is all of them.

    Raises:
        LayerError: the device type is unknown, or the properties are of another one.
    """

    type: str
    properties: CUDAProperties | ROCMProperties | None = None

    def __post_init__(self) -> None:
        if self.type not in DEVICE_TYPES:
            raise LayerError(
                f"Unknown device type: {self.type}", hint=f"use one of {', '.join(DEVICE_TYPES)}"
            )
        for kind, device in ((CUDAProperties, "cuda"), (ROCMProperties, "rocm")):
            if isinstance(self.properties, kind) and self.type != device:
                raise LayerError(f"{kind.__name__} is only supported for '{device}' devices.")

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and highest capability, as 10 * major + minor."""
        if self.properties is None:
            return 0, sys.maxsize
        return self.properties.min_capability, self.properties.max_capability

    def covers(self, capability: int | None) -> bool:
        """Whether a GPU of this capability is included; None is no GPU."""
        low, high = self.limits
        return self.properties is None or (capability is not None and low <= capability <= high)

    def __str__(self) -> str:
        return self.type if self.properties is None else f"{self.type} {self.properties}"


def dotted(capability: int) -> str:
    """A compute capability as NVIDIA writes it: ``9.0`` for 90."""
    return f"{capability // 10}.{capability % 10}"


def mode_name(mode: Mode) -> str:
    """The mode as a mapping names it, without the class: ``INFERENCE|TORCH_COMPILE``."""
    return str(mode).removeprefix("Mode.").lstrip("_")


class Repository(Hashable, Protocol):
    """A source of a layer that can replace another."""

    def load(self) -> type[nn.Module]:
        """The layer, a class of ``nn.Module``; an error ends ``kernelize`` without a fallback."""


UserMapping: TypeAlias = Mapping[str, Mapping[Device | str, Repository | Mapping[Mode, Repository]]]
"""``{layer name: {device: repository or {mode: repository}}}``; a repository alone is FALLBACK."""


Registered: TypeAlias = Mapping[str, Mapping[Device, Mapping[Mode, Repository]]]
"""The kernels for each layer name, by device and mode; never changed, only replaced."""

_COMPILED_INFERENCE = Mode.INFERENCE | Mode.TORCH_COMPILE
_COMPILED_TRAINING = Mode.TRAINING | Mode.TORCH_COMPILE
PREFERENCE: Mapping[Mode, tuple[Mode, ...]] = {
    Mode.INFERENCE: (Mode.INFERENCE, _COMPILED_INFERENCE, Mode.TRAINING, _COMPILED_TRAINING),
    Mode.TRAINING: (Mode.TRAINING, _COMPILED_TRAINING),
    _COMPILED_INFERENCE: (_COMPILED_INFERENCE, _COMPILED_TRAINING),
    _COMPILED_TRAINING: (_COMPILED_TRAINING,),
}
"""The registered modes that serve a wanted one, the best first; ``FALLBACK`` comes after them."""

_everywhere: Registered = {}
_scoped: ContextVar[Registered | None] = ContextVar("kernforge_mapping", default=None)


def register_kernel_mapping(mapping: UserMapping, inherit_mapping: bool = True) -> None:  # noqa: FBT001, FBT002 - the client's signature
    """Register which kernels may replace which layers, from now on.

    Within ``use_kernel_mapping`` the mapping is used until that ends; elsewhere in the whole
    process.

    Args:
        mapping: ``{layer name: {device: repository or {mode: repository}}}``; a device is its type
            or a ``Device``, a repository alone serves as ``Mode.FALLBACK``.
        inherit_mapping: whether earlier registrations stay.

    Raises:
        LayerError: a device type is unknown. Nothing was registered.
        LayerTypeError: the mapping has another form, or a value is not a repository. Nothing was
            registered.
    """
    global _everywhere  # noqa: PLW0603 - the process's mapping
    result = extend_mapping(current() if inherit_mapping else {}, mapping)
    if _scoped.get() is None:
        _everywhere = result
    else:
        _scoped.set(result)


@contextmanager
def use_kernel_mapping(mapping: UserMapping, *, inherit_mapping: bool = True) -> Iterator[None]:
    """Use a mapping for the duration of a ``with`` block, in this thread or task.

    The arguments and errors are those of ``register_kernel_mapping``.
    """
    token = _scoped.set(extend_mapping(current() if inherit_mapping else {}, mapping))
    try:
        yield
    finally:
        _scoped.reset(token)


def current() -> Registered:
    """The mapping of this thread or task."""
    scoped = _scoped.get()
    return _everywhere if scoped is None else scoped


def extend_mapping(registered: Registered, mapping: UserMapping) -> Registered:
    """Add a mapping to the registered kernels; it replaces those of the same device and range.

    As in the client, the earlier kernels go for all modes. A warning names those without successor.
    """
    result = dict(registered)
    for layer_name, devices in mapping.items():
        if not isinstance(devices, Mapping):
            raise LayerTypeError(
                f"the mapping of layer {layer_name!r} is {devices!r}, not one of devices",
                hint='write {layer name: {"cuda": repository}}',
            )
        new: dict[Device, Mapping[Mode, Repository]] = {}
        for key, value in devices.items():
            device = Device(key) if isinstance(key, str) else key
            if not isinstance(device, Device):
                raise LayerTypeError(
                    f"layer {layer_name!r} is mapped for {key!r}, not for a device"
                )
            new[device] = dict(value) if isinstance(value, Mapping) else {Mode.FALLBACK: value}
            if wrong := [mode for mode in new[device] if mode not in {Mode.FALLBACK, *PREFERENCE}]:
                raise LayerTypeError(
                    f"layer {layer_name!r} has a kernel for the mode {wrong[0]!r}, which no model "
                    "is kernelized for",
                    hint="combine TORCH_COMPILE with INFERENCE or TRAINING",
                )
            if missing := [each for each in new[device].values() if not hasattr(each, "load")]:
                raise LayerTypeError(
                    f"layer {layer_name!r} is mapped for {device} to {missing[0]!r}, which is not "
                    "a repository",
                    hint="write a LayerRepository or LocalLayerRepository",
                )
            dropped = result.get(layer_name, {}).get(device, {}).keys() - new[device].keys()
            if dropped:
                logging.getLogger("kernforge").warning(
                    "the new mapping of layer %s for %s drops its kernel for %s: name all modes "
                    "in one mapping",
                    *(layer_name, device, ", ".join(sorted(map(mode_name, dropped)))),
                )
        result[layer_name] = {**result.get(layer_name, {}), **new}
    return result


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The result of a search for a layer in a mapping.

    Attributes:
        mode: the mode that it is registered for.
        missing: why there is none, as a case; ``NONE`` if there is one.
    """

    repo: Repository | None = None
    mode: Mode = Mode.FALLBACK
    reason: str
    missing: KernelizeFallback = KernelizeFallback.NONE


def choose_kernel(
    registered: Registered, layer_name: str, *, device: str, capability: int | None, mode: Mode
) -> Choice:
    """Choose a layer's kernel.

    Args:
        capability: the GPU's compute capability as 10 * major + minor; None without a GPU.
    """
    if mode not in PREFERENCE:
        raise LayerError(f"Unsupported mode: {mode}")
    if layer_name not in registered:
        return Choice(missing=KernelizeFallback.NO_LAYER, reason="no mapping names it")
    entries = registered[layer_name]
    on_device = [each for each in entries if each.type == device]
    if not on_device:
        reason = f"nothing is registered for {device}"
        return Choice(missing=KernelizeFallback.NO_DEVICE, reason=reason)
    fitting = [each for each in on_device if each.covers(capability)]
    if not fitting:
        reason = "every registered range of capabilities needs a GPU, and torch sees none"
        if capability is not None:
            reason = f"no registered range of capabilities contains {dotted(capability)}"
        return Choice(missing=KernelizeFallback.NO_COMPATIBLE_PROPERTIES, reason=reason)
    narrowest = min(fitting, key=_narrowness)
    for each in (*PREFERENCE[mode], Mode.FALLBACK):
        if each in entries[narrowest]:
            reason = f"registered for {narrowest} {mode_name(each)}"
            return Choice(repo=entries[narrowest][each], mode=each, reason=reason)
    reason = f"nothing is registered for {narrowest} that serves {mode_name(mode)}"
    return Choice(missing=KernelizeFallback.NO_COMPATIBLE_MODE, reason=reason)


def _narrowness(device: Device) -> tuple[int, int]:
    """Narrow ranges first; of equally narrow ones that for newer GPUs."""
    low, high = device.limits
    return high - low, -low

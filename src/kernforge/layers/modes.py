# SPDX-License-Identifier: Apache-2.0
"""The words of a kernel mapping: modes, devices, capability ranges and fallback cases.

Names, members and rules are those of the ``kernels`` client 0.17.2 (``kernels/layer/mode.py``,
``device.py``, ``layer.py``), so that a mapping for that client works here.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Flag, auto

from kernforge.errors import LayerError, LayerTypeError

DEVICE_TYPES = ("cpu", "cuda", "mps", "neuron", "npu", "rocm", "tpu", "xpu")


class Mode(Flag):
    """What a model is kernelized for, and what a kernel is registered for.

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
        NO_COMPATIBLE_PROPERTIES: no range of compute capabilities holds this GPU's.
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
    """A range of compute capabilities, both ends in it, as 10 * major + minor.

    Raises:
        LayerError: the lowest is above the highest.
        LayerTypeError: an end is not an integer.
    """

    min_capability: int
    max_capability: int

    def __post_init__(self) -> None:
        for name in ("min_capability", "max_capability"):
            value = getattr(self, name)
            if not isinstance(value, int):
                raise LayerTypeError(
                    f"{name} is {value!r}, not an integer", hint="capability 9.0 is written 90"
                )
        if self.min_capability > self.max_capability:
            raise LayerError(
                f"min_capability ({self.min_capability}) must be <= max_capability "
                f"({self.max_capability})"
            )

    def __str__(self) -> str:
        return f"{dotted(self.min_capability)} to {dotted(self.max_capability)}"


@dataclass(frozen=True, slots=True)
class CUDAProperties(_Capabilities):
    """NVIDIA GPUs from ``min_capability`` to ``max_capability``; capability 9.0 is written 90."""


@dataclass(frozen=True, slots=True)
class ROCMProperties(_Capabilities):
    """AMD GPUs from ``min_capability`` to ``max_capability``, in torch's numbers: gfx942 is 94."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device type in a mapping, perhaps narrowed to some of its GPUs.

    Args:
        type: one of ``DEVICE_TYPES``; registering a mapping refuses others.
        properties: the GPUs, as ``CUDAProperties`` for ``cuda`` or ``ROCMProperties`` for
            ``rocm``; None is all of them.

    Raises:
        LayerError: the properties are of another device type.
    """

    type: str
    properties: CUDAProperties | ROCMProperties | None = None

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and highest capability, as 10 * major + minor."""
        if self.properties is None:
            return 0, sys.maxsize
        return self.properties.min_capability, self.properties.max_capability

    def covers(self, capability: int | None) -> bool:
        """Whether it holds a GPU of this capability; None is no GPU."""
        low, high = self.limits
        return self.properties is None or (capability is not None and low <= capability <= high)

    def __post_init__(self) -> None:
        for kind, device in ((CUDAProperties, "cuda"), (ROCMProperties, "rocm")):
            if isinstance(self.properties, kind) and self.type != device:
                raise LayerError(f"{kind.__name__} is only supported for '{device}' devices.")

    def __str__(self) -> str:
        return self.type if self.properties is None else f"{self.type} {self.properties}"


def dotted(capability: int) -> str:
    """A compute capability as NVIDIA writes it: ``9.0`` for 90."""
    return f"{capability // 10}.{capability % 10}"


def mode_name(mode: Mode) -> str:
    """The mode as it is written in a mapping, without the class: ``INFERENCE|TORCH_COMPILE``."""
    return str(mode).removeprefix("Mode.").lstrip("_")

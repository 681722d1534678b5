# SPDX-License-Identifier: Apache-2.0
"""Which kernel a mapping names for a layer, and why none of the others.

The order is the ``kernels`` client's (``kernels/layer/repos.py``, 0.17.2): the device type, then
the narrowest range of compute capabilities that holds the GPU's, then the modes of
``PREFERENCE``. A narrower range that lacks the mode is not made up for by a wider one.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.modes import (
    DEVICE_TYPES,
    CUDAProperties,
    Device,
    KernelizeFallback,
    Mode,
    ROCMProperties,
    mode_name,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


class Repository(Hashable, Protocol):
    """Where a layer that can stand in for another comes from."""

    def load(self) -> Any:
        """The layer, a class of ``nn.Module``; whatever it raises ends ``kernelize``, unless it may fall back."""


UserMapping: TypeAlias = Mapping[str, Mapping[Device | str, Repository | Mapping[Mode, Repository]]]
"""``{layer name: {device: repository or {mode: repository}}}``; a repository alone is FALLBACK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The kernels that are registered for one device and range, by mode."""

    device: Device
    repos: Mapping[Mode, Repository]

    @property
    def place(self) -> tuple[str, int, int]:
        """What no two entries of a layer share: the device type and the limits."""
        return (self.device.type, *self.limits)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and highest capability, as 10 * major + minor."""
        properties = self.device.properties
        if properties is None:
            return 0, sys.maxsize
        return properties.min_capability, properties.max_capability


Registered: TypeAlias = Mapping[str, tuple[Entry, ...]]
"""The entries for each layer name; never changed, only replaced."""

_COMPILED_INFERENCE = Mode.INFERENCE | Mode.TORCH_COMPILE
_COMPILED_TRAINING = Mode.TRAINING | Mode.TORCH_COMPILE
PREFERENCE: Mapping[Mode, tuple[Mode, ...]] = {
    Mode.INFERENCE: (
        Mode.INFERENCE,
        _COMPILED_INFERENCE,
        Mode.TRAINING,
        _COMPILED_TRAINING,
        Mode.FALLBACK,
    ),
    Mode.TRAINING: (Mode.TRAINING, _COMPILED_TRAINING, Mode.FALLBACK),
    _COMPILED_INFERENCE: (_COMPILED_INFERENCE, _COMPILED_TRAINING, Mode.FALLBACK),
    _COMPILED_TRAINING: (_COMPILED_TRAINING, Mode.FALLBACK),
}
"""The registered modes that serve a wanted one, the best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One registered kernel and what speaks against it; nothing does if ``reason`` is empty."""

    repo: Repository
    device: Device
    mode: Mode
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a mapping gives for a layer.

    Attributes:
        chosen: the kernel to use; None if there is none.
        missing: the case that leaves none; ``NONE`` if there is one.
        reason: the same in words.
        candidates: every kernel that is registered for the layer, with the reason against it.
    """

    chosen: Candidate | None = None
    missing: KernelizeFallback = KernelizeFallback.NONE
    reason: str = ""
    candidates: tuple[Candidate, ...] = ()


def extended(registered: Registered, mapping: UserMapping) -> Registered:
    """The registered entries with more; the same device and range of a layer is replaced.

    Raises:
        LayerError: a device type is unknown, or a capability range belongs to another one.
        LayerTypeError: the mapping has another form.
    """
    result = dict(registered)
    for layer_name, devices in mapping.items():
        if not isinstance(devices, Mapping):
            raise LayerTypeError(
                f"the mapping of layer {layer_name!r} is {devices!r}, not one of devices",
                hint='write {layer name: {"cuda": repository}}',
            )
        entries = list(result.get(layer_name, ()))
        for device, repos in devices.items():
            new = _entry(layer_name, device, repos)
            entries = [entry for entry in entries if entry.place != new.place] + [new]
        result[layer_name] = tuple(entries)
    return result


def _entry(
    layer_name: str, key: Device | str, value: Repository | Mapping[Mode, Repository]
) -> Entry:
    device = Device(key) if isinstance(key, str) else key
    if not isinstance(device, Device):
        raise LayerTypeError(f"layer {layer_name!r} is mapped for {key!r}, which is no device")
    if device.type not in DEVICE_TYPES:
        raise LayerError(
            f"Unknown device type: {device.type}", hint=f"those are {', '.join(DEVICE_TYPES)}"
        )
    kind = {"cuda": CUDAProperties, "rocm": ROCMProperties}.get(device.type)
    if device.properties is not None and (kind is None or not isinstance(device.properties, kind)):
        raise LayerTypeError(f"{device.properties!r} are no properties of {device.type} devices")
    repos = value if isinstance(value, Mapping) else {Mode.FALLBACK: value}
    usable = {mode for modes in PREFERENCE.values() for mode in modes}
    for mode in repos:
        if mode not in usable:
            raise LayerTypeError(
                f"layer {layer_name!r} has a kernel for {mode!r}, which no model is kernelized for",
                hint="combine TORCH_COMPILE with INFERENCE or TRAINING",
            )
    return Entry(device=device, repos=dict(repos))


def choose(
    registered: Registered, layer_name: str, *, device: str, capability: int | None, mode: Mode
) -> Choice:
    """The kernel that a mapping names for a layer.

    Args:
        registered: the mapping.
        layer_name: the layer.
        device: the device type that the model runs on.
        capability: the GPU's compute capability as 10 * major + minor; None without a GPU.
        mode: what the model is kernelized for.

    Raises:
        LayerError: no model can be kernelized for the mode.
    """
    if mode not in PREFERENCE:
        raise LayerError(f"Unsupported mode: {mode}")
    entries = registered.get(layer_name)
    if entries is None:
        return _none(KernelizeFallback.NO_LAYER, "no mapping names it", ())
    on_device = [entry for entry in entries if entry.device.type == device]
    fitting = [entry for entry in on_device if _covers(entry, capability)]
    best = min(fitting, key=_narrowness, default=None)
    judged = tuple(_judge(entries, best, device, capability, mode))
    if not on_device:
        return _none(KernelizeFallback.NO_DEVICE, f"nothing is registered for {device}", judged)
    if best is None:
        reason = f"no registered range of capabilities holds {_said(capability)}"
        return _none(KernelizeFallback.NO_COMPATIBLE_PROPERTIES, reason, judged)
    chosen = next((candidate for candidate in judged if not candidate.reason), None)
    if chosen is None:
        reason = f"nothing is registered for {best.device} that serves {mode_name(mode)}"
        return _none(KernelizeFallback.NO_COMPATIBLE_MODE, reason, judged)
    return Choice(chosen=chosen, candidates=judged)


def _none(missing: KernelizeFallback, reason: str, candidates: tuple[Candidate, ...]) -> Choice:
    return Choice(missing=missing, reason=reason, candidates=candidates)


def _covers(entry: Entry, capability: int | None) -> bool:
    if entry.device.properties is None:
        return True
    low, high = entry.limits
    return capability is not None and low <= capability <= high


def _narrowness(entry: Entry) -> tuple[int, int]:
    """Narrow ranges first; of equally narrow ones that for newer GPUs."""
    low, high = entry.limits
    return high - low, -low


def _judge(
    entries: Iterable[Entry],
    best: Entry | None,
    device: str,
    capability: int | None,
    mode: Mode,
) -> Iterator[Candidate]:
    """Every kernel of a layer with what speaks against it."""
    serving = [m for m in PREFERENCE[mode] if best is not None and m in best.repos]
    for entry in entries:
        if entry.device.type != device:
            against = f"it is for {entry.device.type}, the model runs on {device}"
        elif not _covers(entry, capability):
            against = f"it is for capability {entry.device.properties}, not {_said(capability)}"
        elif entry is not best and best is not None:
            against = f"the range {best.device.properties} is narrower"
        else:
            against = ""
        for registered_mode, repo in entry.repos.items():
            yield Candidate(
                repo=repo,
                device=entry.device,
                mode=registered_mode,
                reason=against or _against_mode(registered_mode, mode, serving),
            )


def _against_mode(registered: Mode, wanted: Mode, serving: list[Mode]) -> str:
    if registered not in PREFERENCE[wanted]:
        return f"a kernel for {mode_name(registered)} does not serve {mode_name(wanted)}"
    if registered != serving[0]:
        return f"a kernel for {mode_name(serving[0])} goes before it"
    return ""


def _said(capability: int | None) -> str:
    return "that of no GPU" if capability is None else f"{capability // 10}.{capability % 10}"

# SPDX-License-Identifier: Apache-2.0
"""The kernel mapping: register it, and choose a layer's kernel with the reason against others.

The order is the ``kernels`` client's (``kernels/layer/repos.py``, 0.17.2): the device type, then
the narrowest range of compute capabilities that holds the GPU's, then the modes of
``PREFERENCE``. Where the narrowest range lacks the mode, a wider one is not used instead.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from kernforge.errors import LayerError, LayerTypeError
from kernforge.layers.modes import (
    DEVICE_TYPES,
    CUDAProperties,
    Device,
    KernelizeFallback,
    Mode,
    ROCMProperties,
    dotted,
    mode_name,
)


class Repository(Hashable, Protocol):
    """A source of a layer that can replace another."""

    def load(self) -> Any:
        """The layer, a class of ``nn.Module``; an error ends ``kernelize`` without a fallback."""


UserMapping: TypeAlias = Mapping[str, Mapping[Device | str, Repository | Mapping[Mode, Repository]]]
"""``{layer name: {device: repository or {mode: repository}}}``; a repository alone is FALLBACK."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MappingEntry:
    """The kernels that are registered for one device and range, by mode."""

    device: Device
    repos: Mapping[Mode, Repository]

    @property
    def key(self) -> tuple[str, int, int]:
        """Device type and limits, which are different for each entry of a layer."""
        return (self.device.type, *self.limits)

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and highest capability, as 10 * major + minor."""
        properties = self.device.properties
        if properties is None:
            return 0, sys.maxsize
        return properties.min_capability, properties.max_capability


Registered: TypeAlias = Mapping[str, tuple[MappingEntry, ...]]
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
class LayerCandidate:
    """A registered kernel and the reason against it, which is empty for the chosen one."""

    repo: Repository
    device: Device
    mode: Mode
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The result of a search for a layer in a mapping.

    Attributes:
        chosen: the kernel to use; None if there is none.
        missing: why there is none, as a case; ``NONE`` if there is one.
        reason: why there is none, in words.
        candidates: every kernel that is registered for the layer, with the reason against it.
    """

    chosen: LayerCandidate | None = None
    missing: KernelizeFallback = KernelizeFallback.NONE
    reason: str = ""
    candidates: tuple[LayerCandidate, ...] = ()


def extend_mapping(registered: Registered, mapping: UserMapping) -> Registered:
    """The registered entries with those of a mapping, which replace the same device and range.

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
            new = _parse_entry(layer_name, device, repos)
            entries = [entry for entry in entries if entry.key != new.key] + [new]
        result[layer_name] = tuple(entries)
    return result


def _parse_entry(
    layer_name: str, key: Device | str, value: Repository | Mapping[Mode, Repository]
) -> MappingEntry:
    device = Device(key) if isinstance(key, str) else key
    if not isinstance(device, Device):
        raise LayerTypeError(f"layer {layer_name!r} is mapped for {key!r}, which is not a device")
    if device.type not in DEVICE_TYPES:
        raise LayerError(
            f"Unknown device type: {device.type}", hint=f"those are {', '.join(DEVICE_TYPES)}"
        )
    kind = {"cuda": CUDAProperties, "rocm": ROCMProperties}.get(device.type)
    if device.properties is not None and (kind is None or not isinstance(device.properties, kind)):
        raise LayerTypeError(f"{device.properties!r} are not properties of {device.type} devices")
    repos = value if isinstance(value, Mapping) else {Mode.FALLBACK: value}
    usable = {mode for modes in PREFERENCE.values() for mode in modes}
    for mode in repos:
        if mode not in usable:
            raise LayerTypeError(
                f"layer {layer_name!r} has a kernel for {mode!r}, which no model is kernelized for",
                hint="combine TORCH_COMPILE with INFERENCE or TRAINING",
            )
    return MappingEntry(device=device, repos=dict(repos))


def choose_kernel(
    registered: Registered, layer_name: str, *, device: str, capability: int | None, mode: Mode
) -> Choice:
    """The kernel that a mapping names for a layer.

    Args:
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
        return _no_choice(KernelizeFallback.NO_LAYER, "no mapping names it", ())
    on_device = [entry for entry in entries if entry.device.type == device]
    fitting = [entry for entry in on_device if _covers(entry, capability)]
    best = min(fitting, key=_narrowness, default=None)
    candidates = tuple(_judge(entries, best, device, capability, mode))
    if not on_device:
        return _no_choice(
            KernelizeFallback.NO_DEVICE, f"nothing is registered for {device}", candidates
        )
    if best is None:
        reason = f"no registered range of capabilities holds {_capability_text(capability)}"
        return _no_choice(KernelizeFallback.NO_COMPATIBLE_PROPERTIES, reason, candidates)
    chosen = next((candidate for candidate in candidates if not candidate.reason), None)
    if chosen is None:
        reason = f"nothing is registered for {best.device} that serves {mode_name(mode)}"
        return _no_choice(KernelizeFallback.NO_COMPATIBLE_MODE, reason, candidates)
    return Choice(chosen=chosen, candidates=candidates)


def _no_choice(
    missing: KernelizeFallback, reason: str, candidates: tuple[LayerCandidate, ...]
) -> Choice:
    return Choice(missing=missing, reason=reason, candidates=candidates)


def _covers(entry: MappingEntry, capability: int | None) -> bool:
    if entry.device.properties is None:
        return True
    low, high = entry.limits
    return capability is not None and low <= capability <= high


def _narrowness(entry: MappingEntry) -> tuple[int, int]:
    """Narrow ranges first; of equally narrow ones that for newer GPUs."""
    low, high = entry.limits
    return high - low, -low


def _judge(
    entries: Iterable[MappingEntry],
    best: MappingEntry | None,
    device: str,
    capability: int | None,
    mode: Mode,
) -> Iterator[LayerCandidate]:
    """Every kernel of a layer with the reason against it."""
    serving = [m for m in PREFERENCE[mode] if best is not None and m in best.repos]
    for entry in entries:
        if entry.device.type != device:
            reason = f"it is for {entry.device.type}, the model runs on {device}"
        elif not _covers(entry, capability):
            reason = (
                f"it is for capability {entry.device.properties}, not "
                f"{_capability_text(capability)}"
            )
        elif entry is not best and best is not None:
            reason = f"the range {best.device.properties} is narrower"
        else:
            reason = ""
        for registered_mode, repo in entry.repos.items():
            yield LayerCandidate(
                repo=repo,
                device=entry.device,
                mode=registered_mode,
                reason=reason or _reason_against_mode(registered_mode, mode, serving),
            )


def _reason_against_mode(registered: Mode, wanted: Mode, serving: list[Mode]) -> str:
    if registered not in PREFERENCE[wanted]:
        return f"a kernel for {mode_name(registered)} does not serve {mode_name(wanted)}"
    if registered != serving[0]:
        return f"a kernel for {mode_name(serving[0])} is preferred"
    return ""


def _capability_text(capability: int | None) -> str:
    return "that of no GPU" if capability is None else dotted(capability)


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
        LayerTypeError: the mapping has another form. Nothing was registered.
    """
    global _everywhere  # noqa: PLW0603 - the process's mapping
    result = extend_mapping(current() if inherit_mapping else {}, mapping)
    if _scoped.get() is None:
        _everywhere = result
    else:
        _scoped.set(result)


def use_kernel_mapping(
    mapping: UserMapping, *, inherit_mapping: bool = True
) -> AbstractContextManager[None]:
    """Use a mapping for the duration of a ``with`` block, in this thread or task.

    The arguments are those of ``register_kernel_mapping``.

    Returns:
        A context manager that can be entered again. Entering it raises the errors of
        ``register_kernel_mapping``.
    """
    return _Scope(mapping, inherit=inherit_mapping)


class _Scope(AbstractContextManager[None]):
    def __init__(self, mapping: UserMapping, *, inherit: bool) -> None:
        self._mapping = mapping
        self._inherit = inherit
        self._tokens: list[Token[Registered | None]] = []

    def __enter__(self) -> None:
        result = extend_mapping(current() if self._inherit else {}, self._mapping)
        self._tokens.append(_scoped.set(result))

    def __exit__(self, *raised: object) -> None:
        _scoped.reset(self._tokens.pop())


def current() -> Registered:
    """The mapping of this thread or task."""
    scoped = _scoped.get()
    return _everywhere if scoped is None else scoped

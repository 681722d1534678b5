# SPDX-License-Identifier: Apache-2.0
"""The kernel mapping: register it, and choose a layer's kernel with the reason against others.

The order is the ``kernels`` client's (``kernels/layer/repos.py``, 0.17.2): the device type, then
the narrowest range of compute capabilities that holds the GPU's, then the modes of
``PREFERENCE``. Where the narrowest range lacks the mode, a wider one is not used instead.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
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


Registered: TypeAlias = Mapping[str, Mapping[Device, Mapping[Mode, Repository]]]
"""The kernels for each layer name, by device and mode; never changed, only replaced."""

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
    """The registered kernels with those of a mapping, which replace the same device and range.

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
        new = {
            _device(layer_name, key): _by_mode(layer_name, value) for key, value in devices.items()
        }
        result[layer_name] = {**result.get(layer_name, {}), **new}
    return result


def _device(layer_name: str, key: Device | str) -> Device:
    device = Device(key) if isinstance(key, str) else key
    if not isinstance(device, Device):
        raise LayerTypeError(f"layer {layer_name!r} is mapped for {key!r}, which is not a device")
    if device.type not in DEVICE_TYPES:
        raise LayerError(
            f"Unknown device type: {device.type}", hint=f"those are {', '.join(DEVICE_TYPES)}"
        )
    kind = {"cuda": CUDAProperties, "rocm": ROCMProperties}.get(device.type, type(None))
    if not isinstance(device.properties, kind | None):
        raise LayerTypeError(f"{device.properties!r} are not properties of {device.type} devices")
    return device


def _by_mode(
    layer_name: str, value: Repository | Mapping[Mode, Repository]
) -> Mapping[Mode, Repository]:
    repos = dict(value) if isinstance(value, Mapping) else {Mode.FALLBACK: value}
    for mode in repos:
        if not any(mode in modes for modes in PREFERENCE.values()):
            raise LayerTypeError(
                f"layer {layer_name!r} has a kernel for {mode!r}, which no model is kernelized for",
                hint="combine TORCH_COMPILE with INFERENCE or TRAINING",
            )
    return repos


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
        return Choice(missing=KernelizeFallback.NO_LAYER, reason="no mapping names it")
    on_device = [each for each in entries if each.type == device]
    fitting = [each for each in on_device if each.covers(capability)]
    best = min(fitting, key=_narrowness, default=None)
    serving = [each for each in PREFERENCE[mode] if best is not None and each in entries[best]]
    gpu = "that of no GPU" if capability is None else dotted(capability)

    def against(entry: Device) -> str:
        if entry not in on_device:
            return f"it is for {entry.type}, the model runs on {device}"
        if entry not in fitting:
            return f"it is for capability {entry.properties}, not {gpu}"
        if best is not None and entry != best:
            return f"the range {best.properties} is narrower"
        return ""

    candidates = tuple(
        LayerCandidate(
            repo=repo,
            device=entry,
            mode=each,
            reason=against(entry) or _reason_against_mode(each, mode, serving),
        )
        for entry, repos in entries.items()
        for each, repo in repos.items()
    )
    if serving:
        chosen = next(each for each in candidates if not each.reason)
        return Choice(chosen=chosen, candidates=candidates)
    missing, reason = KernelizeFallback.NO_DEVICE, f"nothing is registered for {device}"
    if best is not None:
        missing = KernelizeFallback.NO_COMPATIBLE_MODE
        reason = f"nothing is registered for {best} that serves {mode_name(mode)}"
    elif on_device:
        missing = KernelizeFallback.NO_COMPATIBLE_PROPERTIES
        reason = f"no registered range of capabilities holds {gpu}"
    return Choice(missing=missing, reason=reason, candidates=candidates)


def _reason_against_mode(registered: Mode, wanted: Mode, serving: list[Mode]) -> str:
    if registered not in serving:
        return f"a kernel for {mode_name(registered)} does not serve {mode_name(wanted)}"
    if registered != serving[0]:
        return f"a kernel for {mode_name(serving[0])} is preferred"
    return ""


def _narrowness(device: Device) -> tuple[int, int]:
    """Narrow ranges first; of equally narrow ones that for newer GPUs."""
    low, high = device.limits
    return high - low, -low


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

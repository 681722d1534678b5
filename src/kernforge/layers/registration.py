# SPDX-License-Identifier: Apache-2.0
"""The kernel mapping of this process, and those of ``with`` blocks."""

from __future__ import annotations

from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING

from kernforge.layers.mapping import Registered, extend_mapping

if TYPE_CHECKING:
    from contextvars import Token

    from kernforge.layers.mapping import UserMapping

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

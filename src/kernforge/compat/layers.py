# SPDX-License-Identifier: Apache-2.0
"""Repositories of layers and functions as the client makes them, which can be patched."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Protocol

from kernforge.compat import loading
from kernforge.layers import compatibility, decorators, repositories

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

_log = logging.getLogger("kernels.layer.func")


class RepositoryProtocol(Protocol):
    """What a kernel mapping may name."""

    def load(self) -> Any:
        """The class of a layer."""
        ...


class LayerRepositoryProtocol(RepositoryProtocol, Protocol):
    """A repository of a layer."""

    @property
    def layer_name(self) -> str:
        """The layer."""
        ...


class FuncRepositoryProtocol(RepositoryProtocol, Protocol):
    """A repository of a function."""

    @property
    def func_name(self) -> str:
        """The function."""
        ...


class _Open:
    """Its attributes can be set, as those of the client's objects."""

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, value)

    def __delattr__(self, name: str) -> None:
        object.__delattr__(self, name)


class _Published(_Open):
    repo_id: str
    revision: str | None
    version: Any
    trust_remote_code: Any
    user_agent: Any

    def _load(self) -> ModuleType:
        trusted = self.trust_remote_code
        return loading.get_kernel(
            self.repo_id,
            revision=self.revision,
            version=self.version,
            backend=repositories.BACKEND.get(),
            trust_remote_code=trusted if isinstance(trusted, bool) else list(trusted),
            user_agent=self.user_agent,
        )


def _deprecated(old: str, new: str) -> None:
    _log.warning("`%s` is deprecated since kernels 0.17; use `%s`.", old, new)


class LayerRepository(_Published, repositories.LayerRepository):
    """A layer of a published kernel."""


class FuncRepository(_Published, repositories.FuncRepository):
    """A function of a published kernel; ``LayerRepository`` finds functions too."""

    def __init__(self, *args: Any, **named: Any) -> None:
        _deprecated("FuncRepository", "LayerRepository")
        super().__init__(*args, **named)


class LocalLayerRepository(_Open, repositories.LocalLayerRepository):
    """A layer of a kernel in a directory."""


class LocalFuncRepository(_Open, repositories.LocalFuncRepository):
    """A function of a kernel in a directory."""

    def __init__(self, *args: Any, **named: Any) -> None:
        _deprecated("LocalFuncRepository", "LocalLayerRepository")
        super().__init__(*args, **named)


class LockedLayerRepository(_Open, repositories.LockedLayerRepository):
    """A layer of a locked kernel."""


class LockedFuncRepository(_Open, repositories.LockedFuncRepository):
    """A function of a locked kernel."""

    def __init__(self, *args: Any, **named: Any) -> None:
        _deprecated("LockedFuncRepository", "LockedLayerRepository")
        super().__init__(*args, **named)


def use_kernel_func_from_hub(func_name: str) -> Callable[[Any], Any]:
    """``use_kernel_forward_from_hub`` by its older name."""
    _deprecated("use_kernel_func_from_hub", "use_kernel_forward_from_hub")
    return decorators.use_kernel_func_from_hub(func_name)


def validate_layer(*, check_cls: Any, cls: Any, repo: Any) -> None:
    """Refuse a layer that cannot replace another; ``check_cls`` is what it replaces."""
    compatibility.check_layer(cls, check_cls, source=repo)

# SPDX-License-Identifier: Apache-2.0
"""The repositories that a mapping names: a registry, a lock or a directory.

A layer is the attribute ``layers.<layer_name>`` of a kernel's package, a function its attribute
``<func_name>``. A registry is not used before ``load``; repositories with the same arguments are
equal.
"""

from __future__ import annotations

import abc
import functools
import inspect
import os
from contextvars import ContextVar
from dataclasses import KW_ONLY, dataclass, field
from inspect import Parameter
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernforge.errors import LayerError, NoVariantError
from kernforge.layers.mapping import Repository
from kernforge.loader import api
from kernforge.loader.lock import KernelLocks
from kernforge.trust.admission import Allowed

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import nn

_backend: ContextVar[str | None] = ContextVar("kernforge_backend", default=None)
"""The backend to load for, as ``get_kernel`` takes it; an argument of ``load`` would break
subclasses that override that method."""


def load_on(repository: Repository, device: str) -> type[nn.Module]:
    """The layer for a type of device: on the CPU from a build for it, if the kernel has one.

    Where torch is built for a GPU and sees one, ``get_kernel`` takes builds for that GPU. Their
    operators take no tensors that are on the CPU.
    """
    if device == "cpu" and isinstance(repository, _Kernel):
        token = _backend.set("cpu")
        try:
            return repository.load()
        except NoVariantError:
            pass  # load the default below, or raise its error
        finally:
            _backend.reset(token)
    return repository.load()


class _Kernel(abc.ABC):
    """A kernel that is loaded on request; ``str`` names it for a message."""

    __slots__ = ()

    def load(self) -> type[nn.Module]:
        """The layer's class, or a layer that calls the function.

        Raises:
            LayerError: the kernel has no such layer or function.
            KernforgeError: the kernel cannot be loaded.
        """
        kind, name = self._attribute()
        package = self._package()
        holder = getattr(package, "layers", None) if kind == "layer" else package
        attribute = getattr(holder, name, None)
        if attribute is None:
            raise LayerError(
                f"{kind.capitalize()} `{name}` not found in kernel repo {self}",
                hint="its package has no `layers`: import that module in __init__.py"
                if holder is None
                else "",
            )
        layer: type[nn.Module] = attribute if kind == "layer" else function_layer(attribute)
        return layer

    def __str__(self) -> str:
        return "{}, {} `{}`".format(self._location(), *self._attribute())

    def _attribute(self) -> tuple[str, str]:
        """``layer`` or ``function``, and its name."""
        if hasattr(self, "layer_name"):
            return "layer", self.layer_name
        return "function", self.func_name  # type: ignore[attr-defined]  # of each other subclass

    @abc.abstractmethod
    def _package(self) -> ModuleType:
        """Import the kernel's package."""

    @abc.abstractmethod
    def _location(self) -> str:
        """The kernel's location, for a message."""


@dataclass(frozen=True, slots=True)
class _Published(_Kernel):
    """A kernel in a registry, by version or revision."""

    repo_id: str
    _: KW_ONLY
    revision: str | None = None
    version: int | str | None = None
    registry: api.AnyRegistry = None
    trust_remote_code: Allowed = field(default=False, hash=False)
    user_agent: str | dict[str, str] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.revision is not None and self.version is not None:
            raise LayerError("Either a revision or a version must be specified, not both.")
        if self.revision is None and self.version is None:
            raise LayerError(
                "Either a revision or a version must be specified.",
                hint="pass version=<major> for a stable interface",
            )

    def _package(self) -> ModuleType:
        return api.get_kernel(
            self.repo_id,
            version=self.version,
            revision=self.revision,
            registry=self.registry,
            backend=_backend.get(),
            trust_remote_code=self.trust_remote_code,
            user_agent=self.user_agent,
        )

    def _location(self) -> str:
        asked = f"version {self.version}" if self.revision is None else f"revision {self.revision}"
        return f"`{self.repo_id}` ({asked})"


@dataclass(frozen=True, slots=True)
class _Local(_Kernel):
    """A kernel in a directory."""

    repo_path: Path

    def _package(self) -> ModuleType:
        return api.get_local_kernel(self.repo_path, backend=_backend.get())

    def _location(self) -> str:
        return f"`{self.repo_path}`"


@dataclass(frozen=True, slots=True)
class _Locked(_Kernel):
    """A kernel in a registry, at the commit of a lock that is read at once."""

    repo_id: str
    _: KW_ONLY
    lockfile: str | os.PathLike[str] | KernelLocks | None = field(
        default=None, hash=False, repr=False
    )
    registry: api.AnyRegistry = None
    trust_remote_code: Allowed = field(default=False, hash=False)
    commit: str = field(init=False)

    def __post_init__(self) -> None:
        locks = api.read_locks(self.lockfile)
        object.__setattr__(self, "lockfile", locks)
        object.__setattr__(self, "commit", locks.of(self.repo_id).commit)

    def _package(self) -> ModuleType:
        return api.get_locked_kernel(
            self.repo_id,
            lockfile=self.lockfile,
            registry=self.registry,
            backend=_backend.get(),
            trust_remote_code=self.trust_remote_code,
        )

    def _location(self) -> str:
        return f"`{self.repo_id}` (commit {self.commit})"


@dataclass(frozen=True, slots=True)
class LayerRepository(_Published):
    """A layer of a published kernel.

    Args:
        repo_id: ``owner/name``.
        layer_name: the layer's class in the kernel's ``layers``.
        revision: a branch, tag or commit; or
        version: a major version, or a range such as ``"~=1.2"``.
        registry: a directory, a URL or a ``Registry``; None is the default one.
        trust_remote_code: allows kernels where the trust policy leaves it to the caller: True for
            any kernel, or a list of repo ids.
        user_agent: added to the header ``User-Agent`` of requests to a hub.

    Raises:
        LayerError: neither or both of revision and version.
    """

    layer_name: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class FuncRepository(_Published):
    """A function of a published kernel, used as a layer; the rest as for ``LayerRepository``."""

    func_name: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class LocalLayerRepository(_Local):
    """A layer of a kernel in a directory.

    Args:
        repo_path: a directory of variants, one with ``build/`` in it, or a variant.
    """

    layer_name: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class LocalFuncRepository(_Local):
    """A function of a kernel in a directory, used as a layer."""

    func_name: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class LockedLayerRepository(_Locked):
    """A layer of a kernel at the commit in a lock; the rest as for ``LayerRepository``.

    Args:
        lockfile: a ``kernels.lock``, read at once; None takes the one of the calling package.

    Raises:
        RequestError: there is no lock, or it does not have the kernel.
    """

    layer_name: str = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class LockedFuncRepository(_Locked):
    """A function of a kernel at the commit in a lock; the rest as for ``LockedLayerRepository``."""

    func_name: str = field(kw_only=True)


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

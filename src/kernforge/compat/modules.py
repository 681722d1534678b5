# SPDX-License-Identifier: Apache-2.0
"""``install``: from then on ``import kernels`` is answered by kernforge in this process.

A finder before those of Python makes the modules of ``_MODULES``, which are all that applications
import of the client. Each has the public names of ``kernforge``, imported on first use, so that
installing it costs a millisecond and imports no torch.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.metadata
import sys
from collections.abc import Callable, Iterable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from kernforge.artifact.metadata import CLIENT_VERSION
from kernforge.compat import shim
from kernforge.errors import UsageError
from kernforge.system.environment import Environment

CLIENT = "kernels"

_ONE = ("repo_id", "revision", "version", "backend")
_POSITIONS = {
    "get_kernel": (*_ONE, "user_agent", "trust_remote_code", "check_arch"),
    "get_kernel_variants": _ONE,
    "get_local_kernel": ("repo_path", "backend"),
    "get_locked_kernel": ("repo_id", "local_files_only"),
    "has_kernel": _ONE,
}
"""Parameters by position of ``kernels`` 0.14 to 0.16, for which SGLang and vLLM-Omni ask."""
# transformers imports Mode from kernels.layer.mode; benchmarks of kernels import kernels.benchmark.
_MODULES = ("kernels", "kernels.layer", "kernels.layer.mode", "kernels.benchmark")
_OURS: Any = sys.modules["kernforge"]
_PUBLIC = [name for name in _OURS.__all__ if name != "__version__"]


def install(version: str | None = None) -> None:
    """Answer ``import kernels`` and its metadata in this process.

    Args:
        version: the version of ``kernels`` to claim; None takes ``KERNFORGE_KERNELS_VERSION``, or
            else 0.18.2.

    Raises:
        UsageError: the client itself is imported already.
    """
    present = sys.modules.get(CLIENT)
    if present is not None and not getattr(present, shim.MARK, False):
        raise UsageError(
            f"kernels is imported already, from {getattr(present, '__file__', 'elsewhere')}",
            hint="call kernforge.compat.install() before anything imports kernels, or start the "
            "program by `kernforge run --as-kernels -- COMMAND`",
        )
    if _FINDER.version is None:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.version = version or shim.claimed_version(Environment.live())
    _forget_modules()
    importlib.import_module(CLIENT)


def _forget_modules() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == CLIENT]:
        del sys.modules[name]


def by_position(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of ``kernforge`` that also takes the arguments of older clients by position."""
    names = _POSITIONS[function.__name__]

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | named
        if len(args) > len(names) or len(given) < len(args) + len(named):
            raise TypeError(f"{function.__name__} takes {', '.join(names)} by position")
        if "local_files_only" in names and given.pop("local_files_only", False):
            return _OURS.load_kernel(**given)
        return function(**given)

    return call


class _Distribution(importlib.metadata.Distribution):
    """The metadata of ``kernels``, as in the shim's wheel."""

    def __init__(self, version: str) -> None:
        self._files = shim.metadata_files(version)

    def read_text(self, filename: str) -> str | None:
        return self._files.get(filename)

    def locate_file(self, path: Any) -> Any:
        return path


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Makes the modules of the client."""

    version: str | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        del path, target
        if fullname not in _MODULES:
            return None
        is_package = any(name.startswith(f"{fullname}.") for name in _MODULES)
        spec = ModuleSpec(fullname, self, origin="kernforge", is_package=is_package)
        spec.has_location = False
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        wanted = None if context is None else context.name
        if wanted is None or wanted.lower() == CLIENT:
            yield _Distribution(self.version or CLIENT_VERSION)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        public = list(_PUBLIC)
        module.__dict__[shim.MARK] = True
        module.__doc__ = f"``{module.__name__}``, answered by kernforge."
        if module.__name__ == CLIENT:
            module.__dict__["__version__"] = self.version
            public.insert(0, "__version__")
        module.__dict__["__all__"] = public


class _Module(ModuleType):
    """A module of the client, whose names are imported when they are used."""

    def __getattr__(self, name: str) -> Any:
        if name in _PUBLIC:
            value = getattr(_OURS, name)
            if name in _POSITIONS:
                value = by_position(value)
            self.__dict__[name] = value
            return value
        if f"{self.__name__}.{name}" in _MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__dict__["__all__"]})


_FINDER = _Finder()

# SPDX-License-Identifier: Apache-2.0
"""``install``: from then on ``import kernels`` is answered by kernforge in this process.

A finder stands before those of Python and makes the modules of ``names.MODULES``. Their attributes
are imported when they are first used, so installing it costs a millisecond and imports no torch.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.metadata
import importlib.util
import logging
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

from kernforge.compat import names, shim
from kernforge.errors import UsageError
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

CLIENT = "kernels"

# What kernforge logs comes under the client's names, whose levels and handlers then decide.
_LOGGERS = {
    "kernforge": CLIENT,
    "kernforge.versions": "kernels._versions",
    "kernforge.fitness": "kernels.validate",
    "kernforge.layers": "kernels.layer.layer",
    "kernforge.layers.kernelize": "kernels.layer.kernelize",
}


def install(version: str | None = None) -> None:
    """Answer ``import kernels`` and its metadata in this process.

    Args:
        version: the version of ``kernels`` to claim; None takes ``KERNFORGE_KERNELS_VERSION``, or
            else 0.17.2.

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
    claimed = version or names.claimed_version(Environment.live())
    if _FINDER.version is None:
        sys.meta_path.insert(0, _FINDER)
    _FINDER.version = claimed
    for ours, theirs in _LOGGERS.items():
        _set_parent(ours, theirs)
    for name in [name for name in sys.modules if name.partition(".")[0] == CLIENT]:
        del sys.modules[name]
    importlib.import_module(CLIENT)


def uninstall() -> None:
    """Undo ``install``; what was imported by then stays with who imported it."""
    if _FINDER.version is None:
        return
    sys.meta_path.remove(_FINDER)
    _FINDER.version = None
    for name in [name for name in sys.modules if name.partition(".")[0] == CLIENT]:
        del sys.modules[name]
    for ours in _LOGGERS:
        _set_parent(ours, "kernforge" if ours != "kernforge" else "")


def _set_parent(name: str, parent: str) -> None:
    logging.getLogger(name).parent = logging.getLogger(parent)
    # Whether a level is enabled is kept by each logger until one is changed.
    logging.getLogger(name).setLevel(logging.getLogger(name).level)


class _Distribution(importlib.metadata.Distribution):
    """The metadata of ``kernels``, as the shim's wheel has it."""

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
        top, _, below = fullname.partition(".")
        if top != CLIENT or below not in names.MODULES:
            return None
        spec = ModuleSpec(fullname, self, origin="kernforge", is_package=below in names.PACKAGES)
        spec.has_location = False
        return spec

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        wanted = None if context is None else context.name
        if wanted is None or wanted.lower() == CLIENT:
            yield _Distribution(self.version or names.VERSION)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        below = module.__name__.partition(".")[2]
        where = names.homes(below, self.version or names.VERSION)
        module.__dict__[shim.MARK] = True
        module.__doc__ = f"``{module.__name__}``, answered by kernforge."
        module.__dict__["_homes"] = where
        module.__dict__["logger"] = logging.getLogger(module.__name__)
        if not below:
            module.__dict__["__version__"] = self.version
            module.__dict__["__all__"] = ["__version__", *names.TOP]
        else:
            module.__dict__["__all__"] = [name for name in where if not name.startswith("_")]
        if below == "compat":
            module.__dict__["tomllib"] = importlib.import_module("tomllib")


class _Module(ModuleType):
    """A module of the client, whose names are imported when they are used."""

    _homes: dict[str, tuple[str, str]]

    def __getattr__(self, name: str) -> Any:
        homes = self.__dict__.get("_homes", {})
        if name in homes:
            home, ours = homes[name]
            value = getattr(importlib.import_module(f"kernforge.{home}"), ours)
            self.__dict__[name] = value
            return value
        below = self.__name__.partition(".")[2]
        if f"{below}.{name}".lstrip(".") in names.MODULES:
            return importlib.import_module(f"{self.__name__}.{name}")
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self.__dict__.get("__all__", ())})


_FINDER = _Finder()

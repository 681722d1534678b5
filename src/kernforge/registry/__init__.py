# SPDX-License-Identifier: Apache-2.0
"""Reading published kernels.

What ``registry=`` takes is public: ``Registry``, ``DirectoryRegistry`` and ``open_registry``.
"""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.registry.api import Registry, open_registry
    from kernforge.registry.directory import DirectoryRegistry

__all__ = ["DirectoryRegistry", "Registry", "open_registry"]

_HOME_OF = {"DirectoryRegistry": "directory", "Registry": "api", "open_registry": "api"}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib  # noqa: PLC0415 - a module of this package imports no sibling through it

    return getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)


def __dir__() -> list[str]:
    return list(__all__)

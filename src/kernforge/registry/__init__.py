# SPDX-License-Identifier: Apache-2.0
"""Reading published kernels.

What ``registry=`` takes is public: ``Registry``, ``DirectoryRegistry`` and ``open_registry``.
"""

from __future__ import annotations

from kernforge import _lazy

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from kernforge.registry.api import open_registry
    from kernforge.registry.directory import DirectoryRegistry, Registry

__all__ = ["DirectoryRegistry", "Registry", "open_registry"]

__getattr__, __dir__ = _lazy.attributes(
    __name__,
    {
        "api": "open_registry",
        "directory": "DirectoryRegistry Registry",
    },
    __all__,
)

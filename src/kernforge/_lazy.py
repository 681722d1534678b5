# SPDX-License-Identifier: Apache-2.0
"""Lazy attributes of a package: modules are imported at the first use of a name."""

from __future__ import annotations

TYPE_CHECKING = False  # as type checkers know it; typing itself takes most of ten milliseconds
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def attributes(
    package: str, modules: Mapping[str, str], public: list[str]
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The functions ``__getattr__`` and ``__dir__`` of a package (PEP 562).

    Args:
        package: its name.
        modules: the names in each of its modules, separated by blanks; a module of another package
            begins with a dot, as in ``.compare.results``.
        public: names that ``dir`` lists.
    """
    home_of = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> object:
        if name not in home_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        import importlib  # noqa: PLC0415 - see above
        import sys  # noqa: PLC0415

        try:
            value = getattr(importlib.import_module(f".{home_of[name]}", package), name)
        except ModuleNotFoundError as error:
            from kernforge.system import extras  # noqa: PLC0415

            missing = extras.missing(error, f"{package}.{name}")
            if missing is None:
                raise
            raise missing from error
        setattr(sys.modules[package], name, value)
        return value

    return get, lambda: sorted(public)

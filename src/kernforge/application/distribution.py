# SPDX-License-Identifier: Apache-2.0
"""How a project's lock is installed with the project, as its pyproject.toml decides.

An installed application finds its lock in its distribution's metadata or in its package. Build
backends with hooks (setuptools, hatchling) write it into the metadata, if the build requires
kernforge. Every other backend ships the files of the package, so a copy is kept there.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from kernforge.errors import UsageError

_NAME = re.compile(r"[A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """How a lock is installed.

    Attributes:
        text: how the lock is installed, or what to change so that it is.
        package: the directory, relative to the project, that gets a copy; None for none.
        arrives: whether it is.
    """

    text: str
    package: str | None = None
    arrives: bool = True


def find_route(document: dict[str, Any], is_package: Callable[[str], bool]) -> Route:
    """How the lock of a project is installed.

    Args:
        document: its pyproject.toml.
        is_package: whether a directory, relative to the project, is a Python package.

    Raises:
        UsageError: ``[tool.kernforge.lock] package`` is not a package.
    """
    named = _get(document, "tool", "kernforge", "lock").get("package")
    if named is not None:
        if not isinstance(named, str) or not is_package(named):
            raise UsageError(
                f"pyproject.toml: [tool.kernforge.lock] package is {named!r}, which is not a package",
                hint='name a directory with __init__.py, relative to the project: "src/app"',
            )
        return Route(package=named, text=f"it is installed in the package {named}")
    build = _get(document, "build-system")
    if not build and not document.get("project"):
        return Route(
            text="the project is not a package: pass the file, as load_kernel(..., lockfile=...)",
        )
    backend = str(build.get("build-backend", "setuptools"))
    requires = [_project(text) for text in _list(build, "requires") if isinstance(text, str)]
    if backend.startswith("setuptools") and {"kernforge", "kernels"} & set(requires):
        return Route(text="setuptools writes it into the distribution's metadata")
    hooks = _get(document, "tool", "hatch", "build", "hooks")
    if backend.startswith("hatchling") and "kernforge" in hooks:
        return Route(text="hatchling writes it into the distribution's metadata")
    if backend.startswith("setuptools"):
        return Route(
            text="it is not installed with the project: add kernforge to requires of [build-system]",
            arrives=False,
        )
    package = next((path for path in _packages(document, backend) if is_package(path)), None)
    if package is None:
        return Route(
            text="it is not installed with the project: no package was found; name it: "
            '[tool.kernforge.lock] package = "src/app"',
            arrives=False,
        )
    return Route(package=package, text=f"it is installed in the package {package}")


def _packages(document: dict[str, Any], backend: str) -> Iterator[str]:
    """Directories that may be the package, those of the backend's own settings first."""
    tool = _get(document, "tool")
    if backend.startswith("uv_build"):
        yield from _uv_modules(_get(tool, "uv", "build-backend"))
    if backend.startswith("poetry"):
        for entry in _list(_get(tool, "poetry"), "packages"):
            if isinstance(entry, dict):
                yield "/".join(str(entry[key]) for key in ("from", "include") if entry.get(key))
    if backend.startswith("hatchling"):
        yield from map(str, _list(_get(tool, "hatch", "build", "targets", "wheel"), "packages"))
    named = (_get(tool, "flit", "module"), _get(document, "project"), _get(tool, "poetry"))
    for table in named:
        if module := re.sub(r"[-.]+", "_", str(table.get("name", ""))):
            yield from (f"src/{module}", module, f"src/{module.lower()}", module.lower())


def _uv_modules(table: dict[str, Any]) -> Iterator[str]:
    root = str(table.get("module-root", "src"))
    for module in _list(table, "module-name"):
        yield "/".join(filter(None, (root, *str(module).split("."))))


def _get(table: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table at these keys, empty where there is none."""
    value: Any = table
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _list(table: dict[str, Any], key: str) -> list[Any]:
    """The entries at a key, or the one text; what is neither is its own tool's to report."""
    value = table.get(key)
    return value if isinstance(value, list) else [value] if isinstance(value, str) else []


def _project(requirement: str) -> str:
    match = _NAME.match(requirement.strip())
    return re.sub(r"[-_.]+", "-", match[0]).lower() if match else ""

# SPDX-License-Identifier: Apache-2.0
"""The lock of an application's kernels on the disk: read, written, compared with its project."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.application import requirements, resolver
from kernforge.errors import CheckError, UsageError
from kernforge.loader.lock import FILE, PINS_FILE, KernelLocks, Pins
from kernforge.registry.base import Registries
from kernforge.registry.names import Request
from kernforge.system import files

NAMES = (FILE, PINS_FILE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Application:
    """A project that requires kernels.

    Attributes:
        root: its directory.
        asked: the kernels that it requires.
        package: the package that gets a copy of the lock, as [tool.kernforge.lock] names it,
            relative to the project; None for none.
        locks: the content of ``kernels.lock``; None when there is none.
        pins: the content of ``kernforge-kernels.lock``; None when there is none.
    """

    root: Path
    asked: tuple[Request, ...]
    package: str | None
    locks: KernelLocks | None
    pins: Pins | None


def read(root: Path) -> Application:
    """Read a project and its lock.

    Raises:
        UsageError: there is no pyproject.toml, or it cannot be read.
        RequestError: a file of the lock cannot be read.
    """
    path = root / requirements.FILE
    try:
        text = path.read_text()
    except (FileNotFoundError, NotADirectoryError):
        raise UsageError(
            f"{path} is missing", hint="name the directory of a project that requires kernels"
        ) from None
    document = requirements.load_document(text, source=str(path))
    locked, pinned = (_read_bytes(root / name) for name in NAMES)
    return Application(
        root=root,
        asked=requirements.read_dependencies(document, source=str(path)),
        package=_package(document, root),
        locks=None if locked is None else KernelLocks.from_json(locked, source=str(root / FILE)),
        pins=None if pinned is None else Pins.from_json(pinned, source=str(root / PINS_FILE)),
    )


def lock(
    application: Application, registry: Registries, *, upgrade: Collection[str] | None = ()
) -> Pins:
    """Lock a project's kernels and write the files.

    Args:
        application: the project.
        registry: where the kernels are published.
        upgrade: repo ids to lock again; None locks all anew.

    Raises:
        KernforgeError: the errors of ``resolver.choose_commits``.
        StorageError: a file cannot be written.
    """
    before = resolver.PreviousLock(pins=application.pins, locks=application.locks, upgrade=upgrade)
    chosen = resolver.choose_commits(registry, application.asked, before)
    texts = (resolver.lock_text(chosen), chosen.to_json())
    for directory in _directories(application):
        for name, text in zip(NAMES, texts, strict=True):
            if _read_bytes(directory / name) != text.encode():
                files.write_atomic(directory / name, text)
    return chosen


def check(application: Application) -> None:
    """Compare the lock with its project; no registry is used.

    Raises:
        CheckError: it is missing or of another state of the project; the message has all reasons.
    """
    problems = resolver.lock_problems(application.asked, application.pins, application.locks)
    for directory in _directories(application)[1:]:
        for name in NAMES:
            if _read_bytes(directory / name) != _read_bytes(application.root / name):
                problems.append(f"{directory / name} is not the project's lock")
    if problems:
        listing = "\n  ".join(problems)
        raise CheckError(
            f"the lock of {application.root} is out of date:\n  {listing}",
            hint="run kernforge lock, and commit the files that it writes",
        )


def _directories(application: Application) -> list[Path]:
    """The project, and its package where the lock is installed with that."""
    package = application.package
    return [application.root, *([application.root / package] if package else [])]


def _package(document: dict[str, Any], root: Path) -> str | None:
    """The package that ``[tool.kernforge.lock]`` names.

    Raises:
        UsageError: it is not one.
    """
    table: Any = document
    for key in ("tool", "kernforge", "lock"):
        table = table.get(key) if isinstance(table, dict) else None
    package = table.get("package") if isinstance(table, dict) else None
    if package is None:
        return None
    inside = isinstance(package, str) and (root / package).resolve().is_relative_to(root.resolve())
    if not inside or not (root / package / "__init__.py").is_file():
        raise UsageError(
            f"pyproject.toml: [tool.kernforge.lock] package is {package!r}, which is not a package",
            hint='name a directory with __init__.py, relative to the project: "src/app"',
        )
    return str(package)


def _read_bytes(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None

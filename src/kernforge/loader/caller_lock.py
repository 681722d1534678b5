# SPDX-License-Identifier: Apache-2.0
"""Find the ``kernels.lock`` that was installed with the calling application.

It is in the metadata of an installed distribution, where setuptools writes it, or in the package
itself, which every build backend can ship.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kernforge.errors import MissingLockError, RequestError
from kernforge.loader import pins
from kernforge.loader.kernels_lock import FILE, KernelLocks

_HINT = (
    "lock its kernels (kernforge lock PROJECT) and install it again, or name the file: lockfile=..."
)


def read(path: Path) -> KernelLocks:
    """The lock in a file.

    Raises:
        RequestError: there is none, or it is not a lock.
    """
    try:
        return parse(path.read_bytes(), _read_pins(path), source=str(path))
    except FileNotFoundError:
        raise MissingLockError(
            f"there is no file {path}", hint="lock the project's kernels: kernforge lock PROJECT"
        ) from None
    except OSError as error:
        raise RequestError(
            f"{path} cannot be read: {error.strerror}", hint="make it a file that you may read"
        ) from None


def parse(lock: bytes | str, pinned: bytes | str | None, *, source: str) -> KernelLocks:
    """A lock with its pins.

    Args:
        lock: content of ``kernels.lock``.
        pinned: content of ``pins.FILE`` in the same directory; None where there is none.
        source: the name of ``kernels.lock`` in errors.

    Raises:
        RequestError: either cannot be read.
    """
    locks = KernelLocks.from_json(lock, source=source)
    if pinned is None:
        return locks
    return replace(locks, pins=pins.Pins.from_json(pinned, source=f"{pins.FILE} next to {source}"))


def of_caller() -> KernelLocks:
    """The lock of the code that called into kernforge.

    Raises:
        RequestError: none was installed with it, or it is not a lock.
    """
    module = _calling_module()
    if not module:
        raise RequestError(
            "the code that loads a locked kernel belongs to no module, so no lock was installed "
            "with it",
            hint="name the file: lockfile=...",
        )
    for text, pinned, where in _locks_of(module):
        return parse(text, pinned, source=where)
    raise RequestError(f"{module.partition('.')[0]!r} was installed without {FILE}", hint=_HINT)


def _calling_module() -> str:
    """Name of the nearest module up the stack outside of kernforge; empty for a script."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect reads every source file on the way
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in {"kernforge", ""}:
            spec = frame.f_globals.get("__spec__")
            return getattr(spec, "name", "") if name == "__main__" else name
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return ""


def _locks_of(module: str) -> Iterator[tuple[str | bytes, str | bytes | None, str]]:
    """Each lock that was installed with a module, its pins, and its name in errors."""
    package = module.partition(".")[0]
    for name in importlib.metadata.packages_distributions().get(package, ()):
        distribution = importlib.metadata.distribution(name)
        text = distribution.read_text(FILE)
        if text is not None:
            yield text, distribution.read_text(pins.FILE), f"{FILE} of {name}"
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        spec = importlib.util.find_spec(".".join(parts[:count]))
        for directory in (spec and spec.submodule_search_locations) or ():
            path = Path(directory, FILE)
            if path.is_file():
                yield path.read_bytes(), _read_pins(path), str(path)


def _read_pins(lock: Path) -> bytes | None:
    """The content of ``pins.FILE`` in the directory of a lock; None where there is none."""
    path = lock.with_name(pins.FILE)
    return path.read_bytes() if path.is_file() else None

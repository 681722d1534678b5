# SPDX-License-Identifier: Apache-2.0
"""Find the ``kernels.lock`` that came with the application that is calling.

It lies in the metadata of an installed distribution, where setuptools puts it, or in the package
itself, which every build backend can ship.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge.errors import RequestError
from kernforge.loader import pins
from kernforge.loader.kernels_lock import FILE, KernelLocks

if TYPE_CHECKING:
    from collections.abc import Iterator

_HINT = (
    "lock its kernels (kernforge lock PROJECT) and install it again, or name the file: lockfile=..."
)


def read(path: Path) -> KernelLocks:
    """The lock in a file.

    Raises:
        RequestError: there is none, or it is no lock.
    """
    try:
        beside = path.with_name(pins.FILE)
        pinned = beside.read_bytes() if beside.is_file() else None
        return parse(path.read_bytes(), pinned, source=str(path))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}", hint=_HINT) from None


def parse(lock: bytes | str, pinned: bytes | str | None, *, source: str) -> KernelLocks:
    """A lock with what lies beside it.

    Args:
        lock: content of ``kernels.lock``.
        pinned: content of ``pins.FILE``; None where there is none.
        source: what errors call the former.

    Raises:
        RequestError: either cannot be read.
    """
    locks = KernelLocks.from_json(lock, source=source)
    if pinned is None:
        return locks
    return replace(locks, pins=pins.Pins.from_json(pinned, source=f"{pins.FILE} beside {source}"))


def of_caller() -> KernelLocks:
    """The lock of the code that called into kernforge.

    Raises:
        RequestError: it brought none, or it is no lock.
    """
    module = _calling_module()
    if not module:
        raise RequestError(
            "the code that asks for a locked kernel belongs to no module, so no lock came with it",
            hint="name the file: lockfile=...",
        )
    for text, pinned, where in _locks(module):
        return parse(text, pinned, source=where)
    raise RequestError(f"{module.partition('.')[0]!r} brought no {FILE} with it", hint=_HINT)


def _calling_module() -> str:
    """Full name of the nearest module up the stack that is not ours; empty for a bare script."""
    frame = sys._getframe(1)  # noqa: SLF001 - inspect reads every source file on the way
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.partition(".")[0] not in {"kernforge", ""}:
            spec = frame.f_globals.get("__spec__")
            return getattr(spec, "name", "") if name == "__main__" else name
        frame = frame.f_back  # type: ignore[assignment]  # None ends the loop
    return ""


def _locks(module: str) -> Iterator[tuple[str | bytes, str | bytes | None, str]]:
    """Each lock that the module's application brought, what lies beside it, and where."""
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
                beside = path.with_name(pins.FILE)
                pinned = beside.read_bytes() if beside.is_file() else None
                yield path.read_bytes(), pinned, str(path)

# SPDX-License-Identifier: Apache-2.0
"""Bring what a lock names into the store: CUDA toolkits from wheels, headers by ranges.

Nothing of the system's CUDA is looked at. With everything in the store no connection is opened.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kernforge import files, lockfile, rangezip
from kernforge.digest import sha256
from kernforge.errors import IntegrityError, ToolchainError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from kernforge.lockfile import LockedToolkit, LockedWheel
    from kernforge.store import Store
    from kernforge.wheels import Wheels

SHELF = "toolchains"
_TORCH_HEADERS = "torch/include/"
_LIBRARY_HEADERS = "/include/"


class Toolchains:
    """The trees of a lock, each fetched when it is first asked for.

    Args:
        store: where trees are kept.
        wheels: where they come from.
    """

    def __init__(self, store: Store, wheels: Wheels) -> None:
        self._store, self._wheels = store, wheels

    def toolkit(self, toolkit: LockedToolkit) -> Path:
        """Directory of a CUDA toolkit: ``bin/nvcc``, ``include``, ``lib``, ``nvvm``.

        Raises:
            IntegrityError: a wheel is not what the lock says.
            ToolchainError: no index has it.
            NetworkError: the index cannot be reached.
        """

        def fill(tree: Path) -> None:
            for wheel in toolkit.wheels:
                archive = self._wheels.whole(wheel.file, wheel.sha256)
                for path, data in _below_toolkit(archive.fetch(archive.names())):
                    executable = path.startswith(("bin/", "nvvm/bin/"))
                    files.write_new(tree / path, data, executable=executable)
            if not (tree / "bin" / "nvcc").is_file():
                raise ToolchainError(f"the wheels of CUDA {toolkit.release} hold no bin/nvcc")
            if not (tree / "lib64").exists():
                files.symlink("lib", tree / "lib64")  # nvcc 13.0 looks for lib64

        return self._store.tree(SHELF, lockfile.toolkit_key(toolkit), fill)

    def library_headers(self, wheel: LockedWheel) -> Path:
        """Directory whose ``include`` holds the headers of a CUDA library's wheel."""

        def fill(tree: Path) -> None:
            members = self._members(wheel, lambda name: _LIBRARY_HEADERS in name)
            for path, data in _below_toolkit(members):
                files.write_new(tree / path, data)

        return self._store.tree(SHELF, lockfile.wheel_headers_key(wheel), fill)

    def torch_headers(self, wheel: LockedWheel) -> Path:
        """Directory whose ``include`` holds the headers of a torch release."""

        def fill(tree: Path) -> None:
            for name, data in self._members(wheel, lambda n: n.startswith(_TORCH_HEADERS)):
                files.write_new(tree / name.removeprefix("torch/"), data)

        return self._store.tree(SHELF, lockfile.wheel_headers_key(wheel), fill)

    def _members(
        self, wheel: LockedWheel, wanted: Callable[[str], bool]
    ) -> Iterator[tuple[str, bytes]]:
        """Some members of a wheel, each verified against the RECORD that the lock pins."""
        archive = self._wheels.parts(wheel.file, wheel.sha256)
        names = archive.names()
        ((_, record),) = archive.fetch([rangezip.record_name(names)])
        if (found := sha256(record)) != wheel.record:
            raise IntegrityError(
                f"{wheel.file}: its RECORD has sha256 {found}, the lock says {wheel.record}",
                hint="the index serves another file under this name; nothing was stored",
            )
        members = archive.fetch([n for n in names if wanted(n) and not n.endswith("/")])
        yield from rangezip.verified(members, rangezip.record_hashes(record), wheel=wheel.file)


def _below_toolkit(members: Iterable[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Drop the ``nvidia/cu13/`` that all wheels of a toolkit share, and the rest of the wheel."""
    for name, data in members:
        owner, _, below = name.partition("/")
        _, _, path = below.partition("/")
        if owner == "nvidia" and path and not path.endswith("/"):
            yield path, data

# SPDX-License-Identifier: Apache-2.0
"""Bring what a lock names into the store: CUDA toolkits, headers by ranges.

Nothing of the system's CUDA is looked at but a toolkit that the user names. With everything in the
store no connection is opened.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path, PurePosixPath

from kernforge.errors import IntegrityError, ToolchainError, UnavailableError
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.system.digest import sha256
from kernforge.toolchain import front_end, header_libraries, projects
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.installed import LocalTree
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import Lock, LockedTree, LockedWheel

STORE_KIND = "toolchains"
_TORCH_HEADERS = "torch/include/"
_LIBRARY_HEADERS = "/include/"
_STATIC_RUNTIME = "lib/libcudart_static.a"
_PROGRAMS = ("bin/", "nvvm/bin/")


def identity(name: str, lock: Lock) -> str:
    """Fingerprint of a tree or compiler of a lock, whatever its path: for keys of actions."""
    compiler = lock.compilers.get(name)
    return compiler.key if compiler else key(lock.tree(name))


@functools.lru_cache(maxsize=256)
def key(tree: LockedTree) -> str:
    """Fingerprint of what a tree is made of, also its key in the store.

    Different kinds take different members of one wheel, so that each has keys of its own.
    """
    added = front_end.texts(tree) if tree.front_end else {}
    return digest.key(
        "tree",
        of=tree.kind,
        layout=1,
        digest=tree.digest,
        wheels=[[wheel.sha256, wheel.record] for wheel in sorted(tree.every_wheel)],
        added={path: sha256(text) for path, text in added.items()},
    )


class Toolchains:
    """The trees of a lock, each fetched when it is first asked for."""

    def __init__(self, store: Store, wheels: Wheels, local_parts: LocalParts | None = None) -> None:
        self._store, self._wheels = store, wheels
        self._local_parts = local_parts or LocalParts()

    def path(self, tree: LockedTree) -> Path:
        """Directory of a tree, which is fetched if it is not here.

        That of a toolkit holds ``bin/nvcc``, ``include``, ``lib64`` and ``nvvm``; that of headers
        ``include``; that of a static runtime ``lib/libcudart_static.a``.
        """
        if tree.digest and tree.kind in header_libraries.RELEASES:
            fill = functools.partial(self._copy, tree)
            return self._store.tree(STORE_KIND, key(tree), fill)
        if tree.digest:
            return self._here(tree).directory(self._store)
        projects.check(tree)
        return self._store.tree(STORE_KIND, key(tree), functools.partial(self._fill, tree))

    def planned_path(self, tree: LockedTree) -> Path:
        """Directory that a tree has in the store; nothing is fetched, and it may not exist."""
        here = self._local_parts.of(tree)
        return here.path if here else self._store.path(STORE_KIND, key(tree))

    def _here(self, tree: LockedTree) -> LocalTree:
        here = self._local_parts.of(tree)
        if here is None or here.locked.digest != tree.digest:
            raise _not_here(tree, here)
        return here

    def _copy(self, tree: LockedTree, place: Path) -> None:
        """Write the user's headers into a tree."""
        for path, data in self._here(tree).files.items():
            files.write_new(place / "include" / path, data)

    def _fill(self, locked: LockedTree, tree: Path) -> None:
        """Write a tree that is made of wheels."""
        path_in_tree = _PLACED.get(locked.kind, _cutlass)
        taken = [(wheel, path_in_tree) for wheel in locked.wheels]
        if locked.front_end:
            starts = front_end.layout(locked)
            taken = [(w, functools.partial(front_end.placed, below)) for w, below in starts]
            for path, text in front_end.texts(locked).items():
                _write(tree, path, text.encode(), "kernforge")
        for wheel, path_of in taken:
            self._take(wheel, tree, path_of)
        if locked.kind == "cuda" and not (tree / "lib64").exists():
            files.symlink("lib", tree / "lib64")  # nvcc 13.0 looks for lib64
        needed = {"cuda": "bin/nvcc", "cudart": _STATIC_RUNTIME}.get(locked.kind, "")
        if not (tree / needed).exists():
            raise ToolchainError(f"the wheels of {locked} ({locked.release}) hold no {needed}")

    def _take(self, wheel: LockedWheel, tree: Path, path_in_tree: Callable[[str], str]) -> None:
        """Write some members of a wheel, verified against the hash that the lock pins.

        Args:
            path_in_tree: path of a member in the tree, by its name; empty for what is not taken.
        """
        opened = self._wheels.parts if wheel.record else self._wheels.whole
        archive = opened(wheel.file, wheel.sha256)
        names = (name for name in archive.names() if not name.endswith("/"))
        paths = {name: path for name in names if (path := path_in_tree(name))}
        members = archive.verified(paths, wheel.record) if wheel.record else archive.fetch(paths)
        for name, data in members:
            _write(tree, paths[name], data, wheel.file)


def _write(tree: Path, path: str, data: bytes, source: str) -> None:
    """Write a member into a tree without links; an untrusted name stays inside."""
    relative = PurePosixPath(path)
    if relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise IntegrityError(
            f"{source}: {path!r} leads out of the archive",
            hint="the archive is damaged or malicious: do not use it",
        )
    files.write_new(tree / path, data, executable=path.startswith(_PROGRAMS))


def _not_here(tree: LockedTree, here: LocalTree | None) -> UnavailableError:
    hint = {
        "cuda": "name that toolkit's directory in KERNFORGE_CUDA_HOME",
        "python": "build with that Python",
        "torch": "build where that torch is installed",
    }.get(tree.kind, f"name them in {header_libraries.VARIABLE}")
    there = f"here is {_version(here.locked)}" if here else "none is named here"
    return UnavailableError(
        f"the lock names {tree} ({_version(tree)}) of a machine, and {there}",
        hint=f"{hint}, or take another source into the lock with `kernforge lock`",
    )


def _version(tree: LockedTree) -> str:
    return tree.release or tree.digest[:12]


def _torch(name: str) -> str:
    return name.removeprefix("torch/") if name.startswith(_TORCH_HEADERS) else ""


def _libraries(name: str) -> str:
    return _below_toolkit(name) if _LIBRARY_HEADERS in name else ""


def _runtime(name: str) -> str:
    return _STATIC_RUNTIME if name.endswith(f"/{_STATIC_RUNTIME}") else ""


def _cutlass(name: str) -> str:
    below = header_libraries.below_wheel(name)
    return f"include/{below}" if below else ""


def _tvm_ffi(name: str) -> str:
    """Path of a C++ header of tvm-ffi's wheel."""
    below = name.removeprefix("tvm_ffi/include/")
    return f"include/{below}" if below != name and "/" in below.rstrip("/") else ""


def _below_toolkit(name: str) -> str:
    """A member's path without the ``nvidia/cu13/`` that all wheels of a toolkit share, or empty."""
    owner, _, below = name.partition("/")
    path = below.partition("/")[2]
    return path if owner == "nvidia" and not path.endswith("/") else ""


_PLACED = {
    "cuda": _below_toolkit,
    "cuda-libraries": _libraries,
    "cudart": _runtime,
    "torch": _torch,
    "tvm-ffi": _tvm_ffi,
}
"""Path in the tree of a wheel's member, empty for what is not taken, by the tree's kind."""

# SPDX-License-Identifier: Apache-2.0
"""Bring what a lock names into the store: CUDA toolkits, headers by ranges.

Nothing of the system's CUDA is looked at but a toolkit that the user names. With everything in the
store no connection is opened.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

from kernforge.errors import IntegrityError, ToolchainError
from kernforge.store.local import Store
from kernforge.system import archives, files
from kernforge.system.digest import sha256
from kernforge.toolchain import front_end, header_libraries, lockfile, projects
from kernforge.toolchain.index import remote_zip
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.local_parts import LocalParts
from kernforge.toolchain.lockfile import LockedHeaders, LockedToolkit, LockedWheel

STORE_KIND = "toolchains"
_TORCH_HEADERS = "torch/include/"
_LIBRARY_HEADERS = "/include/"
_STATIC_RUNTIME = "lib/libcudart_static.a"
_PROGRAMS = ("bin/", "nvvm/bin/")


class Toolchains:
    """The trees of a lock, each fetched when it is first asked for."""

    def __init__(self, store: Store, wheels: Wheels, local_parts: LocalParts | None = None) -> None:
        self._store, self._wheels = store, wheels
        self._local_parts = local_parts or LocalParts()

    def toolkit(self, toolkit: LockedToolkit) -> Path:
        """Directory of a CUDA toolkit: ``bin/nvcc``, ``include``, ``lib64``, ``nvvm``.

        Raises:
            IntegrityError: a wheel is not what the lock says.
            ToolchainError: nothing has it.
            NetworkError: the index cannot be reached.
        """
        if toolkit.directory:
            return self._installed(toolkit)
        _check_toolkit(toolkit)

        def fill(tree: Path) -> None:
            if toolkit.front_end:
                self._gather(toolkit, tree)
                return
            for wheel in toolkit.wheels:
                archive = self._wheels.whole(wheel.file, wheel.sha256)
                for name, data in archive.fetch(archive.names()):
                    if path := _below_toolkit(name):
                        _write(tree, path, data, wheel.file)
            if not (tree / "bin" / "nvcc").is_file():
                raise ToolchainError(f"the files of CUDA {toolkit.release} hold no bin/nvcc")
            if not (tree / "lib64").exists():
                files.symlink("lib", tree / "lib64")  # nvcc 13.0 looks for lib64

        return self._store.tree(STORE_KIND, lockfile.toolkit_key(toolkit), fill)

    def library_headers(self, wheel: LockedWheel) -> Path:
        """Directory whose ``include`` holds the headers of a CUDA library's wheel."""
        libraries = (*projects.LIBRARIES, *projects.LIBRARIES_12)
        projects.check_wheels([wheel], libraries, "the headers of a CUDA library")

        def fill(tree: Path) -> None:
            self._take(wheel, tree, lambda n: _below_toolkit(n) if _LIBRARY_HEADERS in n else "")

        key = lockfile.tree_key("cuda-library", lockfile.wheel_headers_key(wheel))
        return self._store.tree(STORE_KIND, key, fill)

    def static_runtime(self, wheel: LockedWheel) -> Path:
        """Directory with ``lib/libcudart_static.a`` of a CUDA runtime's wheel."""
        projects.check_wheels([wheel], [projects.RUNTIME, projects.RUNTIME_12], "the CUDA runtime")

        def fill(tree: Path) -> None:
            self._take(
                wheel, tree, lambda n: _STATIC_RUNTIME if n.endswith(f"/{_STATIC_RUNTIME}") else ""
            )
            if not (tree / _STATIC_RUNTIME).is_file():
                raise ToolchainError(f"{wheel.file} holds no {_STATIC_RUNTIME}")

        return self._store.tree(STORE_KIND, lockfile.runtime_key(wheel), fill)

    def torch_headers(self, wheel: LockedWheel) -> Path:
        """Directory whose ``include`` holds the headers of a torch release."""
        projects.check_wheels([wheel], [projects.TORCH], "the headers of torch")

        def fill(tree: Path) -> None:
            self._take(
                wheel,
                tree,
                lambda n: n.removeprefix("torch/") if n.startswith(_TORCH_HEADERS) else "",
            )

        return self._store.tree(STORE_KIND, lockfile.wheel_headers_key(wheel), fill)

    def headers(self, name: str, headers: LockedHeaders) -> Path:
        """Directory whose ``include`` holds the headers of a library.

        Raises:
            ToolchainError: the lock names files of the user's, and these are not here, or a wheel
                of another project.
        """
        is_tvm_ffi = name.startswith("tvm-ffi-")
        allowed = (projects.TVM_FFI,) if is_tvm_ffi else projects.CUTLASS
        wheels = [headers.wheel] if headers.wheel else []
        projects.check_wheels(wheels, allowed, f"the headers of {name}")

        def fill(tree: Path) -> None:
            if headers.wheel is None:
                local = self._local_parts.headers.get(name)
                if local is None or local.digest != headers.digest:
                    raise ToolchainError(
                        f"the lock names header files of {name} with digest {headers.digest[:12]}, "
                        f"{'which differ from ' + local.place if local else 'not given here'}",
                        hint=f"name them with --depends {name}=PATH",
                    )
                header_libraries.write(local, tree)
                return
            below = _tvm_ffi if is_tvm_ffi else header_libraries.below_wheel
            self._take(
                headers.wheel, tree, lambda n: f"include/{path}" if (path := below(n)) else ""
            )

        content = lockfile.headers_key(headers)
        key = lockfile.tree_key("tvm-ffi" if is_tvm_ffi else "cutlass", content)
        return self._store.tree(STORE_KIND, key, fill)

    def _installed(self, toolkit: LockedToolkit) -> Path:
        home = self._local_parts.cuda_home
        if home is None or home.digest != toolkit.directory:
            raise ToolchainError(
                f"the lock names an installed CUDA {toolkit.release}, and "
                f"{f'{home.path} is another one' if home else 'none is named here'}",
                hint="name that toolkit's directory with --cuda-home, or take another source into "
                "the lock with `kernforge lock-toolchain`",
            )
        return home.tree(self._store)

    def _gather(self, toolkit: LockedToolkit, tree: Path) -> None:
        """Put together a toolkit whose front end is that of a later CUDA."""
        for wheel, starts in front_end.layout(toolkit):
            self._take(wheel, tree, functools.partial(front_end.placed, starts))
        for path, text in front_end.texts(toolkit).items():
            _write(tree, path, text.encode(), "kernforge")

    def _take(self, wheel: LockedWheel, tree: Path, placed: Callable[[str], str]) -> None:
        """Write some members of a wheel, each verified against the RECORD that the lock pins.

        Args:
            placed: path of a member in the tree, by its name; empty for what is not taken.
        """
        archive = self._wheels.parts(wheel.file, wheel.sha256)
        names = archive.names()
        ((_, record),) = archive.fetch([remote_zip.record_name(names)])
        if (actual := sha256(record)) != wheel.record:
            raise IntegrityError(
                f"{wheel.file}: its RECORD has sha256 {actual}, the lock says {wheel.record}",
                hint="the index serves another file under this name; nothing was stored",
            )
        paths = {n: path for n in names if not n.endswith("/") and (path := placed(n))}
        members = archive.fetch(paths)
        hashes = remote_zip.record_hashes(record)
        for name, data in remote_zip.verified(members, hashes, wheel=wheel.file):
            _write(tree, paths[name], data, wheel.file)


def _write(tree: Path, path: str, data: bytes, source: str) -> None:
    archives.write_member(tree, path, data, source, executable=path.startswith(_PROGRAMS))


def _check_toolkit(toolkit: LockedToolkit) -> None:
    """Refuse a toolkit that is not made of the projects that a toolkit is made of."""
    release = f"CUDA {toolkit.release}"
    names = projects.TOOLKIT_12 if toolkit.front_end else projects.TOOLKIT
    projects.check_wheels(toolkit.wheels, names, release)
    if front := toolkit.front_end:
        parts = (front.compiler, front.headers, front.optimizer)
        for part, name in zip(parts, projects.TOOLKIT[:3], strict=True):
            projects.check_wheels([part], [name], "the front end")
        projects.check_wheels([front.runtime], [projects.RUNTIME_12], "the CUDA runtime")


def _tvm_ffi(name: str) -> str:
    """Path below ``include`` of a member of tvm-ffi's wheel; empty for what is not a C++ header."""
    prefix = "tvm_ffi/include/"
    below = name.removeprefix(prefix)
    return below if name.startswith(prefix) and "/" in below.rstrip("/") else ""


def _below_toolkit(name: str) -> str:
    """A member's path without the ``nvidia/cu13/`` that all wheels of a toolkit share, or empty."""
    owner, _, below = name.partition("/")
    path = below.partition("/")[2]
    return path if owner == "nvidia" and not path.endswith("/") else ""

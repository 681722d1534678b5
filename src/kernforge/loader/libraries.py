# SPDX-License-Identifier: Apache-2.0
"""Load a kernel's shared objects from the bytes that were verified.

A shared object is read once, into a file in memory that is sealed: no process can change it, this
one included. That copy is hashed, and the dynamic loader opens it by its descriptor. Whoever writes
to the kernel's directory, in place or by a rename, changes nothing that is loaded. A file that only
root can write, in a process that is not root's, needs no copy: it is hashed and opened by one
descriptor.

Three ways lead to the dynamic loader: extension modules (the importer asks for their path here),
``ctypes`` and with it ``torch.ops.load_library``, and ``tvm_ffi.load_module``. What a kernel's own
machine code opens is not seen here.
"""

from __future__ import annotations

import functools
import os
import posixpath
import re
import stat
import threading
from typing import TYPE_CHECKING, Any

from kernforge.artifact.integrity import hash_stream
from kernforge.errors import IntegrityError, MachineError
from kernforge.loader.library_names import read_names
from kernforge.system import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import BufferedReader
    from pathlib import Path

    from kernforge.artifact.metadata import Digest

_LIBRARY = re.compile(r".*\.so(\.\d+)*", re.DOTALL)
_WRITABLE = stat.S_IWGRP | stat.S_IWOTH


_held: dict[tuple[str, str], int] = {}
"""Descriptors that the dynamic loader got, by the path on the disk and the hash: never closed."""


class Libraries:
    """The shared objects of one kernel."""

    def __init__(self, directory: Path, digest: Digest) -> None:
        self.directory = directory
        self.digest = digest
        self._names = [name for name in digest.files if _LIBRARY.fullmatch(name)]
        self._copies: dict[str, int] = {}
        self._lock = threading.RLock()

    def __bool__(self) -> bool:
        return bool(self._names)

    def open(self, name: str, file: Path) -> BufferedReader:
        """Open a file to hash it; a shared object as the copy that will be loaded.

        Raises:
            MachineError: it lies where nothing may be executed.
            StorageError: there is not enough memory for the copy.
        """
        if name not in self._names:
            return file.open("rb")
        copy = _unchangeable(file)
        with self._lock:
            self._copies[name] = copy
        return _stream(copy)

    def name_of(self, path: str) -> str | None:
        """Name of a file in this kernel's variant; None of one that lies elsewhere."""
        for place, root in _ways(path, self.directory):
            if place.startswith(f"{root}/"):
                return place.removeprefix(f"{root}/")
        return None

    def path(self, name: str) -> str:
        """The path by which the dynamic loader gets a shared object, verified.

        Args:
            name: its path in the variant.

        Raises:
            IntegrityError: it is not what the digest says.
        """
        return _path(self._descriptor(name))

    def _descriptor(self, name: str) -> int:
        """An open file that stays open and is what the dynamic loader gets."""
        file = self.directory / name
        known = (os.path.realpath(file), self.digest.files.get(name, ""))
        with self._lock:
            # An import that failed may have left it loaded, and is tried again.
            if known not in _held:
                if name not in self._copies:
                    self._copies[name] = self._open_late(name, file)
                copy = self._copies[name]
                self._load_needed(copy)
                _held[known] = _loaded_already(file) or copy
            return _held[known]

    def _open_late(self, name: str, file: Path) -> int:
        """Open a shared object that is loaded long after the kernel was, and verify it."""
        copy = _unchangeable(file)
        with _stream(copy) as stream:
            if hash_stream(stream, self.digest.algorithm) == self.digest.files.get(name):
                return copy
        os.close(copy)
        raise IntegrityError(
            f"{file} changed after it was verified",
            hint="something else writes there; it was not loaded. Fetch the kernel again",
        )

    def _load_needed(self, copy: int) -> None:
        """Load what a shared object needs of those beside it: ``$ORIGIN`` does not lead there.

        The dynamic loader takes what is loaded already, by the name that it has for itself.
        """
        if len(self._names) < 2:  # noqa: PLR2004 - there is nothing beside it
            return
        beside = {posixpath.basename(name): name for name in self._names}
        for needed in read_names(copy).needed:
            name = beside.get(posixpath.basename(needed))
            if name is None or _opened(needed, os.RTLD_NOLOAD):
                continue
            descriptor = self._descriptor(name)
            if read_names(descriptor).soname != needed:
                raise MachineError(
                    f"{self.directory / name} has no name (DT_SONAME) {needed}, by which another "
                    "file of the kernel needs it",
                    hint=f"link it with -Wl,-soname,{needed}, and build the kernel again",
                )
            _opened(_path(descriptor), 0)

    def close_unused(self) -> None:
        """Give back the memory of those that were not loaded; they are verified again if needed."""
        with self._lock:
            used = set(_held.values())
            for name, copy in tuple(self._copies.items()):
                if copy not in used:
                    os.close(self._copies.pop(name))


def _stream(descriptor: int) -> BufferedReader:
    os.lseek(descriptor, 0, os.SEEK_SET)
    return open(descriptor, "rb", closefd=False)


def _ways(path: str, directory: Path) -> tuple[tuple[str, str], ...]:
    """A path and a directory, as they are named and as they lie, but for a link at the very end."""
    path = os.path.abspath(path)  # noqa: PTH100 - it is text here
    head, tail = os.path.split(path)
    real = os.path.join(os.path.realpath(head), tail)  # noqa: PTH118 - as above
    return (path, os.path.abspath(directory)), (real, os.path.realpath(directory))  # noqa: PTH100


def _unchangeable(file: Path) -> int:
    """A descriptor of a file's content that no process can change from now on."""
    source = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    keep = False
    try:
        if os.fstatvfs(source).f_flag & os.ST_NOEXEC:
            raise MachineError(
                f"{file} lies on a file system from which nothing may be executed (noexec)",
                hint="keep kernels elsewhere: name another registry or cache directory",
            )
        state = os.fstat(source)
        if state.st_uid == 0 and not state.st_mode & _WRITABLE and os.geteuid() != 0:
            keep = True
            return source
        copy = files.sealed_copy(source, file.name)
        if copy is not None:
            return copy
        _warn_once()
        keep = True
        return source
    finally:
        if not keep:
            os.close(source)


@functools.cache
def _warn_once() -> None:
    import logging  # noqa: PLC0415 - slow, and rarely needed

    logging.getLogger("kernforge").warning(
        "this system has no sealed files in memory: who writes to a kernel while it is loaded can "
        "change it"
    )


def _path(descriptor: int) -> str:
    """The path of an open file, which stays open: the dynamic loader compares paths."""
    # A debugger finds it by the number of the process; a /proc of other processes has another one.
    try:
        own = os.readlink("/proc/self") == str(os.getpid())  # noqa: PTH115 - text
    except OSError as error:
        raise MachineError(
            "/proc is not there, and shared objects are loaded by it", hint="mount it"
        ) from error
    return f"/proc/{os.getpid() if own else 'self'}/fd/{descriptor}"


def _loaded_already(file: Path) -> int | None:
    """A descriptor of a file that this process has loaded without us; None where it has not.

    Another client's kernel may be the same file, whose operators cannot be registered twice.
    """
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    if _opened(_path(descriptor), os.RTLD_NOLOAD):
        return descriptor
    os.close(descriptor)
    return None


def _opened(path: str, flags: int) -> int:
    """The handle of a shared object; 0 where ``RTLD_NOLOAD`` says so and it is not loaded."""
    from _ctypes import dlopen  # noqa: PLC0415 - slow, and torch has it loaded

    try:
        handle: int = dlopen(path, os.RTLD_NOW | flags)
    except OSError:
        if not flags & os.RTLD_NOLOAD:
            raise
        return 0
    return handle


_loaded: list[Libraries] = []
"""Of the kernels whose files other functions may open."""


def guard(libraries: Libraries) -> None:
    """From now on, let ``ctypes``, torch and tvm-ffi open these as they were verified."""
    _loaded.append(libraries)
    _guard_ctypes()
    if libraries.directory.name.startswith("tvm-ffi"):
        _guard_tvm_ffi()


def forget(libraries: Libraries) -> None:
    """Undo ``guard``, after an import that failed."""
    if libraries in _loaded:
        _loaded.remove(libraries)


def _verified(path: str) -> str:
    """Where to open a shared object instead; the path itself of what is not a kernel's."""
    for libraries in _loaded:
        name = libraries.name_of(path)
        if name is not None:
            return libraries.path(name)
    return path


@functools.cache
def _guard_ctypes() -> None:
    import ctypes  # noqa: PLC0415 - slow, and torch has it loaded

    # It is private, and has been the one call of the dynamic loader in that module since Python 2.5;
    # a test loads a library by each public way.
    original: Callable[..., int] = ctypes._dlopen  # type: ignore[attr-defined]  # noqa: SLF001

    @functools.wraps(original)
    def dlopen(name: Any, *arguments: Any) -> int:
        text = os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else ""
        return original(_verified(text) if "/" in text else name, *arguments)

    ctypes._dlopen = dlopen  # type: ignore[attr-defined]  # noqa: SLF001


@functools.cache
def _guard_tvm_ffi() -> None:
    try:
        import tvm_ffi  # noqa: PLC0415 - slow, and only kernels for it need it
    except ImportError:  # the kernel's own import says so
        return
    original: Callable[..., Any] = tvm_ffi.load_module

    @functools.wraps(original)
    def load_module(path: Any, *arguments: Any, **named: Any) -> Any:
        text = os.fspath(path)
        verified = _verified(text)
        if verified == text:
            return original(path, *arguments, **named)
        # It chooses a reader by the end of the name, which a descriptor's path does not have. Nobody
        # else can write to the directory.
        place = files.new_dir(files.temporary(), "kernforge-library-")
        try:
            link = place / os.path.basename(text)  # noqa: PTH119 - text
            files.symlink(verified, link)
            return original(os.fspath(link), *arguments, **named)
        finally:
            files.remove_tree(place)

    for module in (tvm_ffi, tvm_ffi.module):
        module.load_module = load_module

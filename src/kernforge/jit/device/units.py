# SPDX-License-Identifier: Apache-2.0
"""CUDA units, the plans that compile them, and what is remembered for edits of their device code."""

from __future__ import annotations

import functools
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kernforge.binary import cubin
from kernforge.build.execute.results import STORE_KIND
from kernforge.build.plan.linking import OBJECT
from kernforge.jit.device import split

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from kernforge.build.plan.graph import Action, Plan
    from kernforge.jit.device.plan import DeviceProgram
    from kernforge.project.targets import Target
    from kernforge.store.local import Store
    from kernforge.toolchain.lockfile import Lock

_MOST_HOSTS = 100
_MOST_SPLITS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaUnit:
    """A CUDA source as it is compiled.

    Attributes:
        path: in the action's directory.
        texts: what the compiler reads, by path.
        includes: search path in the action's directory.
        foreign: names of included headers that are not among the texts.
        opaque: whether others may be read as well.
    """

    path: str
    texts: Mapping[str, str]
    includes: tuple[str, ...]
    foreign: tuple[str, ...]
    opaque: bool
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlan:
    """The plan of one module.

    Attributes:
        link: the last of them; its one output is the module.
        header: compiles the header that units would be faster with; None if none would.
        namespaces: op namespaces by the names that the sources write.
    """

    plan: Plan
    link: Action
    header: Plan | None
    namespaces: Mapping[str, str]
    cuda: tuple[CudaUnit, ...]
    target: Target


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceToolchain:
    """What device code is compiled with.

    Attributes:
        lock: the identities of compilers and headers.
        trees: real path of each tree and program by name.
    """

    lock: Lock
    store: Store
    trees: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostObject:
    """An object by nvcc whose host code can be used again.

    Attributes:
        key: of the action that made it.
        code: its machine code, a cubin.
        instantiations: lines that make NVRTC instantiate what the host's part does.
        unused: constants that NVRTC keeps, and nvcc does not because no code uses them.
        agrees: whether NVRTC gave what nvcc gives; None until they were compared.
    """

    key: str
    code: bytes
    instantiations: str = ""
    unused: frozenset[str] = frozenset()
    agrees: bool | None = None

    def complete(self, program: DeviceProgram) -> DeviceProgram:
        """A program that names and instantiates what the host's part does."""
        return program.naming(cubin.unnamed(self.code)).instantiating(self.instantiations)

    def path(self, store: Store) -> Path:
        """Path of the object in the store, from which it may have been evicted."""
        return store.path(STORE_KIND, self.key) / OBJECT


class DeviceSession:
    """What edits of device code remember: for one process of the JIT, one session of ``dev``.

    Threads may share it.

    Args:
        nvrtc: whether NVRTC may compile; nvcc then compiles the same in the background.
    """

    def __init__(self, *, nvrtc: bool = True) -> None:
        self.nvrtc = nvrtc
        self.split = functools.lru_cache(_MOST_SPLITS)(split.split)
        """``split.split``, which remembers: most files of a unit stay as they were."""
        self.comparing = threading.Lock()
        """Held while nvcc compiles in the background what NVRTC has compiled."""
        self._lock = threading.Lock()
        self._hosts: dict[str, HostObject] = {}
        self._earlier: dict[str, CudaUnit] = {}
        self._refuted: set[str] = set()
        self._threads: list[threading.Thread] = []

    # -- objects whose host code can be used again ------------------------------------------

    def host(self, key: str) -> HostObject | None:
        """The object of a host's part."""
        return self._hosts.get(key)

    def add_host(self, key: str, host: HostObject) -> None:
        """Remember the object of a host's part, and forget the oldest beyond a limit."""
        with self._lock:
            self._hosts[key] = host
            while len(self._hosts) > _MOST_HOSTS:
                del self._hosts[next(iter(self._hosts))]

    def change_host(self, key: str, **changes: Any) -> None:
        """Note what was found of an object, if it is still remembered."""
        with self._lock:
            if host := self._hosts.get(key):
                self._hosts[key] = replace(host, **changes)

    def forget_host(self, key: str) -> None:
        """Forget an object that is not in the store any more."""
        with self._lock:
            self._hosts.pop(key, None)

    def remember(self, module: ModulePlan) -> None:
        """Note a module that the store had: its objects are read when one of its units is edited."""
        with self._lock:
            self._earlier.update((unit.path, unit) for unit in module.cuda)

    def take_earlier(self, path: str) -> CudaUnit | None:
        """A unit of this path of a module that the store had; the caller reads its object."""
        with self._lock:
            return self._earlier.pop(path, None)

    # -- modules that nvcc makes otherwise --------------------------------------------------

    def is_valid(self, module: Path) -> bool:
        """Whether a module is what nvcc makes, as far as that is known."""
        return not self._refuted or str(module) not in self._refuted

    def refute(self, module: Path) -> None:
        """Note that nvcc makes another module of the same sources."""
        with self._lock:
            self._refuted.add(str(module))

    # -- in the background -------------------------------------------------------------------

    def start(self, work: Callable[[], None]) -> None:
        """Do work in a thread, which the process waits for when it ends."""
        thread = threading.Thread(target=work, name="kernforge-device-code")
        with self._lock:
            self._threads[:] = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    def wait(self) -> None:
        """Wait for what is compiled in the background."""
        with self._lock:
            threads = tuple(self._threads)
        for thread in threads:
            thread.join()

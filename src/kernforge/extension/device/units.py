# SPDX-License-Identifier: Apache-2.0
"""CUDA units, their plans, and what is remembered for edits of their device code."""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from kernforge.builder.execute.results import STORE_KIND
from kernforge.builder.plan.graph import Action, Plan
from kernforge.builder.plan.linking import OBJECT
from kernforge.extension.device import split
from kernforge.project.targets import Target
from kernforge.store.local import Store
from kernforge.toolchain.lockfile import Lock

SLIM_DIRECTORY = "kernforge-slim"
"""Where a unit has torch's headers cut to what it uses, in the action's directory."""

_MOST_HOSTS = 100
_MOST_SPLITS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaUnit:
    """A CUDA source as it is compiled.

    Attributes:
        path: in the action's directory.
        texts: what the compiler reads, by path.
        foreign: names of included headers that are not among the texts.
        opaque: whether others may be read as well.
    """

    path: str
    texts: Mapping[str, str]
    foreign: tuple[str, ...]
    opaque: bool
    action: Action


@dataclass(frozen=True, slots=True, kw_only=True)
class ModulePlan:
    """The plan of one module.

    Attributes:
        link: the last of them; its one output is the module.
    """

    plan: Plan
    link: Action
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
    """

    key: str
    code: bytes

    def path(self, store: Store) -> Path:
        """Path of the object in the store, from which it may have been evicted."""
        return store.path(STORE_KIND, self.key) / OBJECT


class DeviceSession:
    """What edits of device code remember: for one process of the JIT, one session of ``dev``.

    Threads may share it.
    """

    def __init__(self) -> None:
        self.split = functools.lru_cache(_MOST_SPLITS)(split.split)
        """``split.split``, which remembers: most files of a unit stay as they were."""
        self._lock = threading.Lock()
        self.whole: set[str] = set()
        """Host's parts of units whose device code needs torch's headers."""
        self._hosts: dict[str, HostObject] = {}
        self._earlier: dict[str, CudaUnit] = {}

    def host(self, key: str) -> HostObject | None:
        """The object of a host's part."""
        return self._hosts.get(key)

    def add_host(self, key: str, host: HostObject) -> None:
        """Remember the object of a host's part, and forget the oldest beyond a limit."""
        with self._lock:
            self._hosts[key] = host
            while len(self._hosts) > _MOST_HOSTS:
                del self._hosts[next(iter(self._hosts))]

    def forget_host(self, key: str) -> None:
        """Forget an object that is not in the store any more."""
        with self._lock:
            self._hosts.pop(key, None)

    def remember(self, module: ModulePlan) -> None:
        """Note a module of the store, whose objects are read when one of its units is edited."""
        with self._lock:
            self._earlier.update((unit.path, unit) for unit in module.cuda)

    def take_earlier(self, path: str) -> CudaUnit | None:
        """A unit of this path of a module that the store had; the caller reads its object."""
        with self._lock:
            return self._earlier.pop(path, None)

# SPDX-License-Identifier: Apache-2.0
"""State of the JIT: loaded modules, op namespaces, toolchains and locks of a process.

A module lies in the store under its own key, so another build is another file: Python and the
dynamic loader take it as a new module, and the old one stays as it is. An op namespace can be
registered once; a further build has one of its own, and ``torch.ops`` shows the latest under the
name that the sources write.

All state of the JIT is in a ``JitSession``, which the functions of this package take as an
argument. A process has one, ``PROCESS``; a test makes its own. Threads may share it.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kernforge.extension import machine
from kernforge.extension.device.units import DeviceSession
from kernforge.extension.plan import (
    Extension,
    ExtensionMachine,
    ExtensionNeeds,
    op_namespaces,
)
from kernforge.extension.request import Tree
from kernforge.system.environment import Environment
from kernforge.system.forks import free_in_child
from kernforge.system.progress import Progress


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModule:
    """A module in this process.

    Attributes:
        module: what Python sees; None if it only registers operators.
        namespaces: what ``torch.ops`` shows by name.
    """

    path: Path
    module: ModuleType | None = None
    namespaces: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModule:
    """Result of a request; ``copy`` is the file in the caller's build directory, or empty."""

    tree: Tree
    loaded: LoadedModule
    copy: str


@dataclass(slots=True, eq=False)
class JitSession:
    """State of the JIT in a process.

    Attributes:
        environment: environment variables; no other part of the JIT reads them from the process.
        cache: the module of each request.
        modules: loaded modules by the digest of all that makes them.
        namespaces: op namespaces that are registered, or planned by a thread.
        imports: how many modules of a name were imported.
        toolchains: by what modules need of them.
        device: history of compilations, for edits.
        lock: held while op namespaces are planned and while a module is imported.
    """

    environment: Environment = field(default_factory=Environment.live)
    cache: dict[Hashable, CachedModule] = field(default_factory=dict)
    modules: dict[str, LoadedModule] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    imports: Counter[str] = field(default_factory=Counter)
    toolchains: dict[Hashable, ExtensionMachine] = field(default_factory=dict)
    device: DeviceSession = field(default_factory=DeviceSession)
    lock: threading.RLock = field(default_factory=lambda: free_in_child(threading.RLock()))
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)

    @contextmanager
    def lock_for(self, *key: Hashable) -> Iterator[None]:
        """Hold the lock of a key; the order is project, module, toolchain."""
        with self.lock:
            lock = self._locks.setdefault(key, free_in_child(threading.Lock()))
        with lock:
            yield

    def toolchain(self, module: Extension, progress: Progress) -> ExtensionMachine:
        """Toolchain of a module, found once for all modules that need the same."""
        needs = ExtensionNeeds.of([module])
        library_path = self.environment.variables.get("LD_LIBRARY_PATH")
        how = (self.environment.may_compile, library_path)
        key = (machine.toolchain_variables(self.environment), how, needs)
        with self.lock_for("toolchain"):
            if key not in self.toolchains:
                self.toolchains[key] = machine.find_toolchain(self.environment, needs, progress)
            return self.toolchains[key]

    @contextmanager
    def namespaces_of(self, module: Extension, key: str) -> Iterator[dict[str, str]]:
        """Reserve a name for each op namespace of a module; free if the block raises.

        It is the namespace's own, or one with a suffix if another build has that.

        Yields:
            The names by those that the sources write.
        """
        names: dict[str, str] = {}
        with self.lock:
            for name in op_namespaces(module).values():
                of_build = f"{name}_{key[:10]}"
                numbered = (f"{of_build}_{number}" for number in itertools.count(2))
                candidates = itertools.chain((name, of_build), numbered)
                names[name] = next(each for each in candidates if each not in self.namespaces)
            self.namespaces.update(names.values())
        try:
            yield names
        except BaseException:
            with self.lock:
                self.namespaces.difference_update(names.values())
            raise


PROCESS = JitSession()
"""The session of this process, in which ``load`` and ``load_inline`` compile."""

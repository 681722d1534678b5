# SPDX-License-Identifier: Apache-2.0
"""What a process has compiled and is compiling.

All state of the JIT is in a ``JitSession``, which the functions of this package take as an argument.
A process has one, ``PROCESS``; a test makes its own. Threads may share it.
"""

from __future__ import annotations

import atexit
import threading
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from kernforge.jit.device.units import DeviceSession
from kernforge.jit.plan import plan_module
from kernforge.system import process
from kernforge.system.console import Console
from kernforge.system.environment import Environment

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

    from kernforge.jit.device.units import ModulePlan
    from kernforge.jit.files import Seen, Stamp
    from kernforge.jit.machine import JitToolchain
    from kernforge.jit.modules import LoadedModule
    from kernforge.jit.plan import JitMachine, ModuleRequest
    from kernforge.jit.request import JitRequest
    from kernforge.toolchain.host_compiler import Compiler
    from kernforge.toolchain.local_parts import LocalParts
    from kernforge.toolchain.lockfile import Lock

_WAITING = (
    "waiting until torch's headers are compiled ahead, which makes the next build of such a source "
    "faster (Ctrl-C ends it, KERNFORGE_JIT_HINT=0 hides this)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModule:
    """What a request has given; ``placed`` is its copy in the caller's directory, or empty."""

    seen: Seen
    loaded: LoadedModule
    placed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedProject:
    """A kernel project that is loaded.

    Attributes:
        stamps: its files as they were.
        listing: when each of its directories had changed, in nanoseconds.
        link: its module in the store.
    """

    stamps: Mapping[str, Stamp | None]
    listing: Mapping[str, int]
    module: ModuleType
    link: Path


@dataclass(slots=True, eq=False)
class JitSession:
    """All that a process has compiled and is compiling.

    Attributes:
        environment: environment variables; no other part of the JIT reads them from the process.
        answers: what each request has given.
        modules: loaded modules by the digest of all that makes them.
        namespaces: op namespaces that are registered, or planned by a thread.
        imports: how many modules of a name were imported.
        toolchains: by what modules need of them.
        compilers: C++ compilers by the values of ``CXX`` and ``PATH``.
        torch_headers: texts of torch's headers by name, for each directory of them.
        whole: modules, by name and sources, that need torch's headers as they are.
        hinted: whether the hint on slow headers was shown.
        projects: loaded projects by directory and ``KERNFORGE_HOME``.
        local_parts: what this machine lends to a project, by root and content of its manifest.
        project_locks: each project's lock, with what it was made for.
        project_modules: modules in the store that were loaded, by the id of their sources.
        device: what edits of device code remember.
        lock: held while op namespaces are planned and while a module is imported.
    """

    environment: Environment = field(default_factory=Environment.live)
    answers: dict[JitRequest, CachedModule] = field(default_factory=dict)
    modules: dict[str, LoadedModule] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    imports: Counter[str] = field(default_factory=Counter)
    toolchains: dict[Hashable, JitToolchain] = field(default_factory=dict)
    compilers: dict[Hashable, Compiler] = field(default_factory=dict)
    torch_headers: dict[str, dict[str, str | None]] = field(default_factory=dict)
    whole: set[tuple[str, tuple[str, ...]]] = field(default_factory=set)
    hinted: bool = False
    projects: dict[tuple[Path, str | None], CachedProject] = field(default_factory=dict)
    local_parts: dict[tuple[Path, str], LocalParts] = field(default_factory=dict)
    project_locks: dict[Path, tuple[object, Lock]] = field(default_factory=dict)
    project_modules: dict[str, set[Path]] = field(default_factory=dict)
    device: DeviceSession = field(default_factory=DeviceSession)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)
    _threads: dict[str, threading.Thread] = field(default_factory=dict)

    @contextmanager
    def alone(self, *key: Hashable) -> Iterator[None]:
        """One thread at a time runs the block with this key.

        Locks are taken in one order: project, name of a project, module, toolchain.
        """
        with self.lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield

    @contextmanager
    def planned(
        self, request: ModuleRequest, machine: JitMachine
    ) -> Iterator[tuple[ModuleRequest, ModulePlan]]:
        """Plan a module whose op namespaces no other thread has or plans.

        They are free again if the block raises.

        Yields:
            The request with the namespaces that were taken before, and its plan.
        """
        with self.lock:
            request = replace(request, taken=frozenset(self.namespaces))
            module = plan_module(request, machine)
            self.namespaces.update(module.namespaces.values())
        try:
            yield request, module
        except BaseException:
            self.release(module)
            raise

    def release(self, module: ModulePlan) -> None:
        """Free the op namespaces of a planned module that is not loaded."""
        with self.lock:
            self.namespaces.difference_update(module.namespaces.values())

    def start_once(self, key: str, work: Callable[[], None]) -> None:
        """Do work in a thread, once for each key; ``finish`` waits for it when the process ends."""
        with self.lock:
            if key not in self._threads:
                # Not a thread that Python itself waits for: it would do so without a word.
                self._threads[key] = thread = threading.Thread(target=work, daemon=True)
                thread.start()

    @property
    def background(self) -> tuple[threading.Thread, ...]:
        """Threads that compile for later calls."""
        with self.lock:
            return tuple(thread for thread in self._threads.values() if thread.is_alive())

    def wait(self) -> None:
        """Wait for what is compiled in the background."""
        for thread in self.background:
            thread.join()
        self.device.wait()

    def finish(self) -> None:
        """Wait for what is compiled in the background, and say so; an interrupt ends it."""
        if self.background and self.environment.kernforge_jit_hint != "0":
            Console().note(_WAITING)
        try:
            self.wait()
        except KeyboardInterrupt:
            process.kill_all()


PROCESS = JitSession()
"""The session of this process, in which ``load`` and ``load_inline`` compile."""
atexit.register(PROCESS.finish)

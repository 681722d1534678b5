# SPDX-License-Identifier: Apache-2.0
"""What a process has compiled and is compiling, and the import of its modules.

A module lies in the store under its own key, so another build is another file: Python and the
dynamic loader take it as a new module, and the old one stays as it is. An op namespace can be
registered once; a further build has one of its own, and ``torch.ops`` shows the latest under the
name that the sources write.

All state of the JIT is in a ``JitSession``, which the functions of this package take as an
argument. A process has one, ``PROCESS``; a test makes its own. Threads may share it.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import threading
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from kernforge.binary.symbols import demangled
from kernforge.errors import BuildError
from kernforge.extension import machine
from kernforge.extension.device.units import DeviceSession
from kernforge.extension.plan import (
    Extension,
    ExtensionNeeds,
    ExtensionToolchain,
    free_namespaces,
)
from kernforge.extension.request import Tree
from kernforge.extension.undefined import missing_symbol
from kernforge.system.environment import Environment
from kernforge.toolchain.index.wheels import Progress

_HINTS = (
    (
        "failed to map segment",
        "its file system may be mounted with noexec: name another directory in KERNFORGE_HOME",
    ),
    (
        "__cudaRegisterLinkedBinary",
        "device code that was compiled with -rdc=true or -dc lacks its device link: nvcc -dlink",
    ),
    (
        "undefined symbol",
        "an undefined symbol is a function that is declared and called, and defined nowhere",
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModule:
    """A module in this process.

    Attributes:
        name: what its caller calls it; all builds of one module have one name.
        module: what Python sees; None if it only registers operators.
        namespaces: what ``torch.ops`` shows by name.
    """

    name: str
    path: Path
    module: ModuleType | None = None
    namespaces: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CachedModule:
    """What a request has given; ``placed`` is its copy in the caller's directory, or empty."""

    tree: Tree
    loaded: LoadedModule
    placed: str


@dataclass(slots=True, eq=False)
class JitSession:
    """All that a process has compiled and is compiling.

    Attributes:
        environment: environment variables; no other part of the JIT reads them from the process.
        answers: what each request has given.
        modules: loaded modules by the digest of all that makes them.
        namespaces: op namespaces that are registered, or planned by a thread.
        shown: op namespaces by the name that sources write and by module, the latest last.
        imports: how many modules of a name were imported.
        toolchains: by what modules need of them.
        whole: sources of modules, by the module's name, that need torch's headers as they are.
        hinted: whether the hint on slow headers was shown.
        device: what edits of device code remember.
        lock: held while op namespaces are planned and while a module is imported.
    """

    environment: Environment = field(default_factory=Environment.live)
    answers: dict[Hashable, CachedModule] = field(default_factory=dict)
    modules: dict[str, LoadedModule] = field(default_factory=dict)
    namespaces: set[str] = field(default_factory=set)
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    imports: Counter[str] = field(default_factory=Counter)
    toolchains: dict[Hashable, ExtensionToolchain] = field(default_factory=dict)
    whole: dict[str, set[str]] = field(default_factory=dict)
    hinted: bool = False
    device: DeviceSession = field(default_factory=DeviceSession)
    lock: threading.RLock = field(default_factory=threading.RLock)
    _locks: dict[Hashable, threading.Lock] = field(default_factory=dict)

    @contextmanager
    def alone(self, *key: Hashable) -> Iterator[None]:
        """One thread at a time runs the block with this key.

        Locks are taken in one order: project, module, toolchain.
        """
        with self.lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            yield

    def toolchain(self, module: Extension, progress: Progress) -> ExtensionToolchain:
        """What compiles a module; found once for all modules that need the same."""
        needs = ExtensionNeeds.of([module])
        key = (machine.deciding_variables(self.environment), needs)
        with self.alone("toolchain"):
            if key not in self.toolchains:
                self.toolchains[key] = machine.find_toolchain(self.environment, needs, progress)
            return self.toolchains[key]

    @contextmanager
    def namespaces_of(self, module: Extension, key: str) -> Iterator[dict[str, str]]:
        """Take op namespaces for a module that no other thread's has; free if the block raises.

        Args:
            key: of the module's content.

        Yields:
            The namespaces by the names that the sources write.
        """
        with self.lock:
            names = free_namespaces(module, key, self.namespaces)
            self.namespaces.update(names.values())
        try:
            yield names
        except BaseException:
            self.release(names)
            raise

    def release(self, namespaces: Mapping[str, str]) -> None:
        """Free the op namespaces of a module that is not loaded."""
        with self.lock:
            self.namespaces.difference_update(namespaces.values())


PROCESS = JitSession()
"""The session of this process, in which ``load`` and ``load_inline`` compile."""


def show(session: JitSession, loaded: LoadedModule, torch: Any) -> None:
    """Show a build's operators in ``torch.ops``, beside those of other modules."""
    for name, namespace in loaded.namespaces.items():
        shown = session.shown.setdefault(name, {})
        if [*shown.items()][-1:] != [(loaded.name, namespace)]:
            shown.pop(loaded.name, None)
            shown[loaded.name] = namespace
        setattr(
            torch.ops,
            name,
            _SharedNamespace(name, shown) if shown.keys() - {loaded.name} else namespace,
        )


class _SharedNamespace(ModuleType):
    """Operators that several modules register in one namespace; the latest build comes first."""

    def __init__(self, name: str, builds: Mapping[str, Any]) -> None:
        super().__init__(f"torch.ops.{name}")
        self._builds = builds

    def __getattr__(self, operator: str) -> Any:
        for namespace in reversed(tuple(self._builds.values())):
            if (found := getattr(namespace, operator, None)) is not None:
                return found
        raise AttributeError(f"{self.__name__} has no operator {operator}")


def load_module(
    session: JitSession,
    path: Path,
    name: str,
    namespaces: Mapping[str, str],
    torch: Any,
    *,
    python: bool,
) -> LoadedModule:
    """Load a shared object into this process.

    Args:
        name: its Python module's.
        namespaces: op namespaces that it registers, by the names that its sources write.
        python: whether it is a Python module.

    Raises:
        BuildError: it lacks a symbol or is not a Python module.
    """
    with session.lock:  # before Python 3.12, imports at once may mix up names
        module = _import_extension(session, path, name) if python else None
        if not python:
            _load_library(path, torch)
    operators = {written: _op_namespace(torch, actual) for written, actual in namespaces.items()}
    loaded = LoadedModule(name=name, path=path, module=module, namespaces=operators)
    show(session, loaded, torch)
    return loaded


def _load_library(path: Path, torch: Any) -> None:
    try:
        torch.ops.load_library(str(path))
    except OSError as error:
        # Torch says only that it did not work; the dynamic loader's words are the cause.
        message = _with_cpp_name(str(error.__cause__ or error))
        raise BuildError(f"{path} cannot be loaded: {message}", hint=_hint(message)) from error


def _import_extension(session: JitSession, path: Path, name: str) -> ModuleType:
    # pybind11 keeps modules by their full name, and returns the first one to a second import.
    # The function that initializes a module is named after the last part of the name.
    earlier = session.imports[name]
    session.imports[name] += 1
    full_name = f"kernforge_jit_{earlier}.{name}" if earlier else name
    loader = importlib.machinery.ExtensionFileLoader(full_name, str(path))
    spec = importlib.util.spec_from_loader(full_name, loader)
    if spec is None:
        raise BuildError(f"{path} cannot be imported as {name}")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        message = _with_cpp_name(str(error))
        hint = _hint(message)
        if "PyInit_" in message:
            hint = (
                f"no source defines the module {name}: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, "
                "m), or pass is_python_module=False for sources that only register operators"
            )
        elif "already registered" in message:
            hint = (
                "an earlier build in this process has the class: bind it with py::module_local(), "
                "py::class_<T>(m, name, py::module_local())"
            )
        raise BuildError(f"{name} cannot be imported: {message}", hint=hint) from error
    return module


def _hint(message: str) -> str:
    """What to do about a dynamic loader's message; empty if nothing is known."""
    return next((hint for said, hint in _HINTS if said in message), "")


def _with_cpp_name(message: str) -> str:
    """A dynamic loader's message, with the C++ name of the symbol that is missing."""
    symbol = missing_symbol(message)
    name = demangled(symbol)
    return message if name == symbol else f"{message} ({name})"


def _op_namespace(torch: Any, name: str) -> Any:
    return torch._ops._OpNamespace(name)  # noqa: SLF001 - torch.ops keeps what it showed first

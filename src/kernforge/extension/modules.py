# SPDX-License-Identifier: Apache-2.0
"""Import modules that were just compiled, and keep their predecessors.

A module lies in the store under its own key, so another build is another file: Python and the
dynamic loader take it as a new module, and the old one stays as it is. An op namespace can be
registered once; a further build has one of its own, and ``torch.ops`` shows the latest under the
name that the sources write.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from kernforge.binary.symbols import demangled
from kernforge.errors import BuildError
from kernforge.extension.session import JitSession, LoadedModule
from kernforge.extension.undefined import missing_symbol

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

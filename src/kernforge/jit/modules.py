# SPDX-License-Identifier: Apache-2.0
"""Import modules that were compiled just now, and keep those that came before them.

A module lies in the store under its own key, so another build is another file: Python and the
dynamic loader take it as a new module, and the old one stays as it is. An op namespace can be
registered once; a further build has one of its own, and ``torch.ops`` shows the latest under the
name that the sources write.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernforge.binary.symbols import demangled
from kernforge.errors import BuildError
from kernforge.jit import undefined

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path
    from types import ModuleType


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A module in this process.

    Attributes:
        path: the shared object.
        module: what Python sees; None where it only registers operators.
        spaces: what ``torch.ops`` shows by name.
    """

    path: Path
    module: ModuleType | None
    spaces: Mapping[str, Any]

    def show(self, torch: Any) -> None:
        """Let ``torch.ops`` show the operators of this build."""
        for name, space in self.spaces.items():
            setattr(torch.ops, name, space)


def load(
    path: Path, name: str, namespaces: Mapping[str, str], torch: Any, *, python: bool
) -> Loaded:
    """Bring a shared object into this process.

    Args:
        path: the shared object.
        name: its Python module's.
        namespaces: namespace that its sources write -> that it registers.
        torch: the package.
        python: whether it is a Python module.

    Raises:
        BuildError: it lacks a symbol or is no Python module.
    """
    module = _import(path, name) if python else None
    if not python:
        try:
            torch.ops.load_library(str(path))
        except OSError as error:
            words = _readable(str(error))
            raise BuildError(f"{path} cannot be loaded: {words}", hint=_UNDEFINED) from error
    spaces = {spoken: _namespace(torch, actual) for spoken, actual in namespaces.items()}
    found = Loaded(path=path, module=module, spaces=spaces)
    found.show(torch)
    return found


_UNDEFINED = "an undefined symbol is a function that is declared and called, and defined nowhere"
_imported: Counter[str] = Counter()


def _import(path: Path, name: str) -> ModuleType:
    # pybind11 keeps modules by their whole name, and gives the first one again to whoever asks.
    # What it initializes is named after the last dot.
    earlier = _imported[name]
    _imported[name] += 1
    whole = f"kernforge_jit_{earlier}.{name}" if earlier else name
    loader = importlib.machinery.ExtensionFileLoader(whole, str(path))
    spec = importlib.util.spec_from_loader(whole, loader)
    if spec is None:
        raise BuildError(f"{path} cannot be imported as {name}")
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError as error:
        hint = _UNDEFINED
        if "PyInit_" in str(error):
            hint = (
                f"no source defines the module {name}: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
                ", or pass is_python_module=False for sources that only register operators"
            )
        elif "already registered" in str(error):
            hint = (
                "an earlier build in this process has the class: bind it with py::module_local(), "
                "py::class_<T>(m, name, py::module_local())"
            )
        words = _readable(str(error))
        raise BuildError(f"{name} cannot be imported: {words}", hint=hint) from error
    return module


def _readable(words: str) -> str:
    """A dynamic loader's words, with the C++ name of the symbol that it misses."""
    symbol = undefined.symbol(words)
    name = demangled(symbol)
    return words if name == symbol else f"{words} ({name})"


def _namespace(torch: Any, name: str) -> Any:
    return torch._ops._OpNamespace(name)  # noqa: SLF001 - torch.ops keeps what it showed first

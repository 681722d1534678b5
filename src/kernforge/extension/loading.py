# SPDX-License-Identifier: Apache-2.0
"""Load a compiled extension into this process, and explain what the dynamic loader refuses.

A module takes symbols from the process that loads it, torch's among them, so that the linker does
not refuse a function that nothing defines: a missing launcher shows only at the import.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import platform
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType

from kernforge.binary import abi_floor, elf
from kernforge.binary.elf import Elf
from kernforge.binary.symbols import bare_name, demangled, one_sided
from kernforge.errors import BuildError, CheckError
from kernforge.extension import machine, op_names
from kernforge.extension.plan import Extension
from kernforge.extension.session import JitSession, LoadedModule
from kernforge.source import cpp_text
from kernforge.source.op_namespace import EXTENSION_NAME

_HINTS = {
    "PyInit_": (
        "no source defines the module {name}: write PYBIND11_MODULE(TORCH_EXTENSION_NAME, m), or "
        "functions=[...] with load_inline; or pass is_python_module=False for sources that only "
        "register operators"
    ),
    "already registered": (
        "an earlier build in this process has the class: bind it with py::module_local(), "
        "py::class_<T>(m, name, py::module_local())"
    ),
    "failed to map segment": (
        "its file system may be mounted with noexec: name another directory in KERNFORGE_HOME"
    ),
    "__cudaRegisterLinkedBinary": (
        "device code that was compiled with -rdc=true or -dc lacks its device link: nvcc -dlink"
    ),
    "undefined symbol": (
        "an undefined symbol is a function that is declared and called, and defined nowhere"
    ),
}
"""Messages of the dynamic loader and what to do; ``{name}`` stands for the module."""
_LIBRARY_FOLDERS = tuple(
    Path(folder)
    for folder in ("/usr/local/lib", f"/usr/lib/{platform.machine()}-linux-gnu", "/usr/lib64")
)
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")
# Names that torch, its headers and the C++ library have, in whichever instance.
_OTHERS = re.compile(
    r"(?:(?:vtable|typeinfo|typeinfo name|guard variable|VTT|construction vtable) for )?"
    r"(?:\w[\w<>:,*& ]* )?(?:at|c10|torch|caffe2|pybind11|std|__gnu_cxx|__cxxabiv1|cutlass|cute)::"
    r"|operator (?:new|delete)"
)


def load_built(
    session: JitSession,
    extension: Extension,
    path: Path,
    namespaces: Mapping[str, str],
    restore: Callable[[str], str],
) -> LoadedModule:
    """Load a shared object of the store into this process.

    Args:
        namespaces: op namespaces that it registers, by the names that its sources write.
        restore: gives a source's path as the user knows it.
    """
    texts = {restore(p): text for unit in extension.units for p, text in unit.texts.items()}
    written = op_names.module_names(texts.values()) - {EXTENSION_NAME}
    name = extension.name if not written or extension.name in written else min(written)
    torch = machine.import_torch()
    module = None
    try:
        with session.lock:  # before Python 3.12, imports at once may mix up names
            if extension.is_python_module:
                module = _import_extension(session, path, name)
            else:
                torch.ops.load_library(str(path))
    except (ImportError, OSError) as error:
        # Torch says only that it did not work; the dynamic loader's words are the cause.
        message = str(error.__cause__ or error)
        symbol = missing_symbol(message)
        library = elf.parse(path.read_bytes())
        known = symbol and undefined_error(
            name, library, texts, "the sources", linked=extension.linked, missing=symbol
        )
        if known:
            raise known from error
        if (cpp := demangled(symbol)) != symbol:
            message += f" ({cpp})"
        hint = next((text for said, text in _HINTS.items() if said in message), "")
        raise BuildError(
            f"{name} cannot be imported: {message}", hint=hint.format(name=name)
        ) from error
    operators = {
        # torch.ops itself keeps the namespace that it showed first.
        name: torch._ops._OpNamespace(actual)  # noqa: SLF001
        for name, actual in namespaces.items()
    }
    loaded = LoadedModule(path=path, module=module, namespaces=operators)
    show_operators(loaded)
    return loaded


def _import_extension(session: JitSession, path: Path, name: str) -> ModuleType:
    # pybind11 keeps modules by their full name, and returns the first one to a second import.
    # The function that initializes a module is named after the last part of the name.
    earlier = session.imports[name]
    session.imports[name] += 1
    full_name = f"kernforge_jit_{earlier}.{name}" if earlier else name
    loader = importlib.machinery.ExtensionFileLoader(full_name, str(path))
    spec = importlib.machinery.ModuleSpec(full_name, loader, origin=str(path))
    spec.has_location = True
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def show_operators(loaded: LoadedModule) -> None:
    """Show a build's operators in ``torch.ops`` by the namespaces that its sources write."""
    for name, namespace in loaded.namespaces.items():
        setattr(machine.import_torch().ops, name, namespace)


# -- undefined functions -------------------------------------------------------------------


def undefined_error(
    name: str,
    library: Elf,
    texts: Mapping[str, str],
    where: str,
    *,
    linked: Iterable[str] = (),
    missing: str = "",
) -> BuildError | None:
    """Error of a module that lacks a function of its own sources.

    Args:
        texts: its sources and headers, by the path that the user knows.
        where: what holds the sources, as ``the list of sources``, for the hint.
        linked: paths that the linker read because of the user's flags.
        missing: the symbol that the dynamic loader misses; empty if it was not asked.

    Returns:
        None if other libraries provide all undefined symbols, or may do so.
    """
    others = {missing} if missing else _linked_names(library, linked)
    if others is None:
        return None
    wanted = [
        symbol
        for symbol in library.undefined
        if not symbol.version and (symbol.name in others) == bool(missing)
    ]
    for message, hint in one_sided(replace(library, undefined=tuple(wanted)), texts):
        return BuildError(f"{name} cannot be imported: {message}", hint=hint)
    written = {s.name: demangled(s.name) for s in wanted if missing or not s.weak}
    for symbol, text in written.items():
        # A name of C may be any library's.
        if not (missing or symbol.startswith("_Z")) or _OTHERS.match(text):
            continue
        if place := _named(text, texts):
            return BuildError(
                f"{name} cannot be imported: {text} is named in {place}, and no source defines it",
                hint="define it (namespace and arguments are part of its name), or add the source "
                f"that does to {where}",
            )
    return None


def _linked_names(library: Elf, linked: Iterable[str]) -> set[str] | None:
    """What the libraries define that a module depends on, but for those of the system and of torch.

    Returns:
        None if one of them is not found, or cannot be read.
    """
    folders = dict.fromkeys((*(Path(path).parent for path in linked), *_LIBRARY_FOLDERS))
    names: set[str] = set()
    todo, seen = list(library.needed), set(abi_floor.DRIVER)
    while todo:
        soname = todo.pop()
        if soname in seen or abi_floor.is_present(soname):
            continue
        seen.add(soname)
        path = next((p for folder in folders if (p := folder / soname).is_file()), None)
        try:
            found = path and elf.parse(path.read_bytes())
        except (CheckError, OSError):
            return None
        if not found:
            return None
        names.update(symbol.name for symbol in found.exported)
        todo += found.needed
    return names


def missing_symbol(message: str) -> str:
    """The symbol that a dynamic loader's message names as undefined; empty if it names none."""
    match = _UNDEFINED.search(message)
    return match[1] if match else ""


def _named(function: str, texts: Mapping[str, str]) -> str:
    """Where a function is first named, as ``file:line``; empty if nowhere."""
    word = re.compile(rf"\b{re.escape(bare_name(function))}\s*[(<]")
    for path, text in texts.items():
        code = cpp_text.code(text)
        if match := word.search(code):
            return f"{path}:{cpp_text.line_of(code, match.start())}"
    return ""

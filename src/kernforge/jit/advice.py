# SPDX-License-Identifier: Apache-2.0
"""Advice on modules that compile slowly or twice, and on names that are undefined.

A launcher that a binding calls and no source defines is not an error for the linker: a module takes
symbols from the process, torch's among them. The dynamic loader then names the symbol.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from kernforge.binary import elf, symbols
from kernforge.errors import BuildError, page
from kernforge.source import diagnostics
from kernforge.source.extension_source import is_stable, is_torch_header
from kernforge.system.console import Console
from kernforge.system.tables import first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from kernforge.jit.plan import ModuleUnit
    from kernforge.jit.session import JitSession
    from kernforge.source.message_names import MessageNames

_LONG_S = 3.0
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")
_SOURCES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh")
READ = (*_SOURCES, *_HEADERS)
"""Suffixes of the files that ``undefined_error`` reads."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)


# -- slow ----------------------------------------------------------------------------------


def slow_hint(units: Iterable[ModuleUnit], seconds: float, names: MessageNames) -> str:
    """One line on what made a build long; empty if it was not the choice of the sources."""
    if seconds < _LONG_S:
        return ""
    for unit in units:
        headers = [name for name in unit.closure.foreign if is_torch_header(name)]
        if not headers or any(is_stable(text) for text in unit.texts.values()):
            continue
        file = names.title(unit.path).rpartition("/")[2]
        return (
            f"{file} includes <{headers[0]}>, and compiling took {seconds:.0f} s. Kernels on raw pointers "
            "in a .cu without torch's headers and a binding on torch's stable ABI compile in a few: "
            f"{page('how-to/author/use-the-jit')} (KERNFORGE_JIT_HINT=0 hides this)"
        )
    return ""


def show_slow_hint(
    session: JitSession, units: Iterable[ModuleUnit], seconds: float, names: MessageNames
) -> None:
    """Show the hint, once in a process, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if session.hinted or session.environment.kernforge_jit_hint == "0":
        return
    if hint := slow_hint(units, seconds, names):
        session.hinted = True
        Console().note(hint)


# -- twice ---------------------------------------------------------------------------------


def retry_notice(output: str) -> str:
    """One line on why a source is compiled again, by what the compilers wrote the first time."""
    errors = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(errors[0])}; " if errors else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"


def show_retry(session: JitSession, output: str) -> None:
    """Show the notice, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if session.environment.kernforge_jit_hint != "0":
        Console().note(retry_notice(output))


# -- undefined -----------------------------------------------------------------------------


def missing_symbol(message: str) -> str:
    """The symbol that a dynamic loader's message names as undefined; empty if it names none."""
    match = _UNDEFINED.search(message)
    return match[1] if match else ""


def linkage_error(name: str, library: Path, texts: Mapping[str, str]) -> BuildError | None:
    """What is wrong with a function that is undefined because ``extern "C"`` is on one side only.

    Args:
        name: the module's.
        library: its shared object.
        texts: sources and headers by path.

    Returns:
        None if it has no such function.
    """
    for message, hint in symbols.one_sided(elf.parse(library.read_bytes()), texts):
        return BuildError(f"{name} cannot be imported: {message}", hint=hint)
    return None


def undefined_error(
    name: str, function: str, texts: Mapping[str, str], kernels: Collection[str]
) -> BuildError | None:
    """What is wrong with a project in which a function is undefined.

    Args:
        function: the function, as C++ writes it.
        texts: the project's sources and headers, by path.
        kernels: paths of those that are compiled as kernels for this backend.

    Returns:
        None if the project never names the function.
    """
    word = re.compile(rf"\b{re.escape(symbols.bare_name(function))}\b")
    named = [path for path, text in texts.items() if word.search(_INCLUDE.sub("", text))]
    if not named:
        return None
    declared = [path for path in named if path.endswith(_HEADERS)]
    compiled = [path for path in kernels if path.endswith(_SOURCES)]
    likely = [path for path in compiled if _includes(texts.get(path, ""), declared)]
    where = " or ".join(sorted(likely or compiled)) or "a source"
    return BuildError(
        f"{name} cannot be imported: {function} is named in {first_names(named)}, and no source "
        "defines it",
        hint=f"define it in {where} (namespace and arguments are part of its name), or name the "
        "source that does in build.toml's src, for this backend too",
    )


def _includes(text: str, headers: Collection[str]) -> bool:
    wanted = {posixpath.basename(path) for path in headers}
    return any(posixpath.basename(name) in wanted for name in _INCLUDE.findall(text))

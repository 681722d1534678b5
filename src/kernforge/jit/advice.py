# SPDX-License-Identifier: Apache-2.0
"""Advice on modules that compile slowly, and on names that are misspelt or undefined.

A source that failed with fewer headers than torch's is compiled again with all of them. That takes
long, and is in vain if a name is only misspelt. The preprocessor reads the same headers in an eighth
of the time. It knows no meanings, but every word: a name that the compiler did not know, and that is
neither a word nor a macro in any of the headers, stays unknown. In any other case it is compiled.

A launcher that a binding calls and no source defines is not an error for the linker: a module takes
symbols from the process, torch's among them. The dynamic loader then names the symbol.
"""

from __future__ import annotations

import posixpath
import re
from typing import TYPE_CHECKING

from kernforge.build.execute import action as execute_action
from kernforge.errors import BuildError, page
from kernforge.source import diagnostics
from kernforge.source.extension_source import CUDA_SUFFIXES, is_stable, is_torch_header
from kernforge.system import files
from kernforge.system.console import Console
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kernforge.build.plan.graph import Action
    from kernforge.jit.device.units import DeviceToolchain, ModulePlan
    from kernforge.jit.plan import ModuleUnit
    from kernforge.jit.session import JitSession

_LONG_S = 3.0
# GCC's words and clang's.
_UNKNOWN = re.compile(
    r"['\u2018](\w+)['\u2019] was not declared in this scope.*"
    r"|use of undeclared identifier '(\w+)'.*"
)
# What is compiled may depend on which headers were read.
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?:el)?if", re.MULTILINE)
_PLACE = re.compile(rb'^# \d+ "([^"\n]*)"', re.MULTILINE)
_TEXT = re.compile(rb'"(?:\\.|[^"\\\n])*"')
_PREPROCESSED = "seen.ii"
_UNDEFINED = re.compile(r"undefined symbol: (\w+)")
_SOURCES = (".cpp", ".cc", ".cxx", ".c", ".cu")
_HEADERS = (".h", ".hpp", ".hh", ".hxx", ".cuh")
READ = (*_SOURCES, *_HEADERS)
"""Suffixes of the files that ``undefined_error`` reads."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_SHOWN = 5


# -- slow ----------------------------------------------------------------------------------


def slow_hint(units: Iterable[ModuleUnit], seconds: float) -> str:
    """One line on what made a build long; empty if it was not the choice of the sources."""
    if seconds < _LONG_S:
        return ""
    for unit in units:
        headers = [name for name in unit.closure.foreign if is_torch_header(name)]
        if not headers or any(is_stable(text) for text in unit.texts.values()):
            continue
        file = unit.path.rpartition("/")[2]
        return (
            f"{file} includes <{headers[0]}>, and compiling took {seconds:.0f} s. Kernels on raw pointers "
            "in a .cu without torch's headers and a binding on torch's stable ABI compile in a few: "
            f"{page('how-to/author/use-the-jit')} (KERNFORGE_JIT_HINT=0 hides this)"
        )
    return ""


def show_slow_hint(session: JitSession, units: Iterable[ModuleUnit], seconds: float) -> None:
    """Show the hint, once in a process, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if session.hinted or session.environment.kernforge_jit_hint == "0":
        return
    if hint := slow_hint(units, seconds):
        session.hinted = True
        Console().note(hint)


# -- misspelt ------------------------------------------------------------------------------


def retry_notice(output: str) -> str:
    """One line on why a source is compiled a second time.

    Args:
        output: what the compilers wrote of the first.
    """
    errors = diagnostics.errors(diagnostics.parse(output))
    why = f"{diagnostics.title(errors[0])}; " if errors else ""
    return f"{why}compiling again with all of torch's headers, which takes longer"


def show_retry(session: JitSession, output: str) -> None:
    """Show the notice, unless ``KERNFORGE_JIT_HINT`` is 0."""
    if session.environment.kernforge_jit_hint != "0":
        Console().note(retry_notice(output))


def fails_certainly(module: ModulePlan, toolchain: DeviceToolchain, output: str) -> bool:
    """Whether sources that failed with fewer headers are certain to fail with all of torch's.

    Args:
        module: the plan with all headers.
        output: what the compilers wrote of the sources with fewer.
    """
    names = unknown_names(output)
    compiled = [a for a in module.plan.actions if "-c" in a.argv and not _is_cuda(a)]
    texts = [module.plan.texts[each.name] for a in compiled for each in a.inputs]
    if not names or any(map(_CONDITION.search, texts)):
        return False
    used: set[str] = set()
    for action in compiled:
        text = _preprocess(action, module, toolchain)
        if text is None:
            return False
        user_files = {each.path for each in action.inputs}
        for name in names:
            count = occurrences(text, name, user_files)
            if count is None:
                return False
            used |= {name} if count else set()
    return used == names


def unknown_names(output: str) -> set[str]:
    """Names that a C++ compiler did not know; none if it complained of anything else too."""
    complaints = diagnostics.errors(diagnostics.parse(output))
    errors = [each for each in complaints if each.severity == "error"]
    matches = [_UNKNOWN.fullmatch(each.message) for each in errors]
    if any(each.file.endswith(CUDA_SUFFIXES) for each in errors):
        return set()
    names = {match[1] or match[2] for match in matches if match}
    return names if all(matches) else set()


def occurrences(text: bytes, name: str, user_files: Collection[str]) -> int | None:
    """How often the user's files use a name; None if it occurs anywhere else.

    Args:
        text: what the preprocessor wrote, with the definitions of macros.
        user_files: paths of the user's files.
    """
    count = 0
    for match in re.finditer(rb"\b" + re.escape(name.encode()) + rb"\b", text):
        start = text.rfind(b"\n", 0, match.start()) + 1
        marker = text.rfind(b"\n# ", 0, match.start())
        place = _PLACE.match(text, marker + 1)
        if place is None or place[1].decode(errors="replace") not in user_files:
            return None
        # It may be in a string that a macro made.
        line = text[start : match.start()]
        count += _TEXT.sub(b"", line).count(b'"') == 0
    return count


def _is_cuda(action: Action) -> bool:
    return any(word.endswith(CUDA_SUFFIXES) for word in action.argv)


def _preprocess(action: Action, module: ModulePlan, toolchain: DeviceToolchain) -> bytes | None:
    """What a unit's compiler reads; None if it cannot be preprocessed."""
    trees = {name: toolchain.trees[name] for name in action.trees}
    words = (execute_action.resolve(word, trees) for word in action.argv[:-2] if word != "-c")
    # The last two words of the compiler's argv say where the object goes.
    argv = (*words, "-E", "-dD", "-o", _PREPROCESSED)
    with files.staging(toolchain.store.root / "work") as directory:
        for each in action.inputs:
            files.write_new(directory / each.path, module.plan.texts[each.name])
        done = run(Command(argv=argv, cwd=directory))
        return (directory / _PREPROCESSED).read_bytes() if done.returncode == 0 else None


# -- undefined -----------------------------------------------------------------------------


def missing_symbol(message: str) -> str:
    """The symbol that a dynamic loader's message names as undefined; empty if it names none."""
    match = _UNDEFINED.search(message)
    return match[1] if match else ""


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
    bare = function.partition("(")[0].rpartition("::")[2].rpartition(" ")[2].partition("<")[0]
    word = re.compile(rf"\b{re.escape(bare)}\b")
    named = [path for path, text in texts.items() if word.search(_INCLUDE.sub("", text))]
    if not named:
        return None
    declared = [path for path in named if path.endswith(_HEADERS)]
    compiled = [path for path in kernels if path.endswith(_SOURCES)]
    likely = [path for path in compiled if _includes(texts.get(path, ""), declared)]
    where = " or ".join(sorted(likely or compiled)) or "a source"
    return BuildError(
        f"{name} cannot be imported: {function} is named in {_list_some(named)}, and no source "
        "defines it",
        hint=f"define it in {where} (namespace and arguments are part of its name), or name the "
        "source that does in build.toml's src, for this backend too",
    )


def _includes(text: str, headers: Collection[str]) -> bool:
    wanted = {posixpath.basename(path) for path in headers}
    return any(posixpath.basename(name) in wanted for name in _INCLUDE.findall(text))


def _list_some(paths: Collection[str]) -> str:
    shown = sorted(paths)[:_SHOWN]
    more = len(paths) - len(shown)
    return ", ".join(shown) + (f" and {more} more" if more else "")

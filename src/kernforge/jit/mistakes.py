# SPDX-License-Identifier: Apache-2.0
"""Whether a source that does not compile with fewer headers would compile with all of torch's.

To compile it with all of them takes long, and is in vain if the mistake is the user's. Some errors
are not about names (``source.final_errors``). For the others the preprocessor reads all headers in
an eighth of the time: a name that is missing and occurs in none of them stays missing. Where it
occurs, the fewer headers are read too. If all of torch's headers declare nothing more of the names
that the source uses before its first error, that error stays.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, NamedTuple

from kernforge.build.execute import action as execute_action
from kernforge.jit import torch_headers
from kernforge.source import cpp_text, declarations, diagnostics, final_errors
from kernforge.source.extension_source import CUDA_SUFFIXES, NAMES_HEADER
from kernforge.system import files
from kernforge.system.process import Command, run

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Collection, Mapping

    from kernforge.build.execute.outcome import Failure
    from kernforge.build.plan.graph import Action
    from kernforge.jit.device.units import DeviceToolchain, ModulePlan
    from kernforge.source.declarations import Declared
    from kernforge.source.diagnostics import Diagnostic

# An operator has no name that the source uses, and a conversion may be defined anywhere.
_NAMELESS = re.compile(r"no match for |no operator |no suitable |user-defined conversion")
_WORD = re.compile(r"(?P<before>\.\s*|->\s*|::\s*)?\b(?P<name>[A-Za-z_]\w*)(?P<after>\s*[(<])?")
_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[^\n]*", re.MULTILINE)
# Namespaces in which names are found that the source does not qualify, or only by these.
_VISIBLE = frozenset({"std", "at", "c10", "torch", "pybind11", "py", "cuda"})
_KEYWORDS = frozenset(
    [
        *("alignas", "auto", "bool", "break", "case", "catch", "char", "class", "const"),
        *("constexpr", "continue", "decltype", "default", "delete", "do", "double", "else"),
        *("enum", "explicit", "extern", "false", "float", "for", "friend", "goto", "if"),
        *("inline", "int", "long", "mutable", "namespace", "new", "noexcept", "nullptr"),
        *("operator", "private", "protected", "public", "return", "short", "signed", "sizeof"),
        *("static", "struct", "switch", "template", "this", "throw", "true", "try", "typedef"),
        *("typename", "union", "unsigned", "using", "virtual", "void", "volatile", "while"),
        *("include", "define", "ifdef", "ifndef", "endif", "pragma"),
    ]
)
_PREPROCESSED = "seen.ii"
# Definitions of macros are written, too. Where a macro was expanded is not asked for and takes a tenth.
_OPTIONS = ("-dD", "-ftrack-macro-expansion=0")
_OURS = (torch_headers.PATH, NAMES_HEADER)


def is_certain(
    failures: Collection[Failure], fewer: ModulePlan, whole: ModulePlan, toolchain: DeviceToolchain
) -> bool:
    """Whether a module that failed with fewer headers is certain to fail with all of torch's.

    Args:
        failures: the actions of the former that failed.
        fewer: its plan.
        whole: the plan with all headers.
        toolchain: what compiles both.
    """
    actions = {_source(action): action for action in whole.plan.actions if "-c" in action.argv}
    compiled = [each for each in failures if "-c" in each.action.argv]
    return any(
        _stays(each, fewer, whole, actions[_source(each.action)], toolchain)
        for each in compiled
        if _source(each.action) in actions
    )


def _stays(
    failure: Failure,
    fewer: ModulePlan,
    whole: ModulePlan,
    with_all: Action,
    toolchain: DeviceToolchain,
) -> bool:
    """Whether the first error of a unit stays with all headers."""
    error = first_error(failure.output)
    given = {
        each.path: whole.plan.texts[each.name] for each in with_all.inputs if each.path not in _OURS
    }
    if error is None or not _is_users(given, error.file):
        return False
    if final_errors.is_final(error, given):
        return True
    if _NAMELESS.search(error.message):
        return False
    whole_text = _preprocess(with_all, whole, toolchain)
    if whole_text is None:
        return False
    users = functools.partial(_is_users, given)
    missing = final_errors.missing_name(error)
    if missing and not declarations.occurs(whole_text, missing, users):
        return True
    few_text = _preprocess(failure.action, fewer, toolchain)
    if few_text is None:
        return False
    few_text, whole_text = (declarations.without_files(t, users) for t in (few_text, whole_text))
    used = used_names(before(error, given))
    names = used.members | used.plain
    known, more = (declarations.declared(text, names) for text in (few_text, whole_text))
    visible = _VISIBLE | used.plain | declarations.used_namespaces(whole_text)
    return not brings(known, more, used, visible)


def first_error(output: str) -> Diagnostic | None:
    """The first error in what a compiler wrote; all others may come of it."""
    messages = diagnostics.parse(output)
    return next((each for each in messages if each.severity == "error"), None)


def before(error: Diagnostic, texts: Mapping[str, str]) -> str:
    """What the user wrote up to the line of an error, or all where that line is not known.

    Args:
        error: the error.
        texts: the user's files.
    """
    lines = texts.get(error.file, "").splitlines()[: error.line]
    others = (text for path, text in texts.items() if path != error.file)
    return "\n".join((*others, *lines))


class UsedNames(NamedTuple):
    """Names that C++ uses.

    Attributes:
        members: names that are those of members alone.
        plain: all others.
        called: those of the latter that may be a function's: called or qualified somewhere.
    """

    members: frozenset[str]
    plain: frozenset[str]
    called: frozenset[str]


def used_names(code: str) -> UsedNames:
    """The names that a text of C++ uses."""
    words = [*_WORD.finditer(_INCLUDE.sub("", cpp_text.code(code)))]
    apart = [(m["name"], (m["before"] or "").strip(), m["after"]) for m in words]
    plain = {name for name, sign, _ in apart if sign in {"", "::"}} - _KEYWORDS
    called = {name for name, sign, after in apart if sign == "::" or (after and not sign)}
    members = {name for name, _, _ in apart} - plain - _KEYWORDS
    return UsedNames(frozenset(members), frozenset(plain), frozenset(called - _KEYWORDS))


def brings(
    known: Counter[Declared], more: Counter[Declared], used: UsedNames, visible: Collection[str]
) -> bool:
    """Whether headers declare something that a source may have missed.

    Args:
        known: what the fewer headers declare.
        more: what all headers declare.
        used: the names that the source uses.
        visible: namespaces that it can see.
    """

    def sees(each: Declared) -> bool:
        if each.kind == "macro":
            return True
        named = all(name in visible or name.startswith("_") for name in each.namespace)
        return named and each.name in (used.called if each.kind == "function" else used.plain)

    had = {each.name for each in known if sees(each)}
    defined = {(each.namespace, each.name) for each in known if each.kind == "name"}
    for each in more - known:
        if not sees(each):
            continue
        # A further name of a type that is known brings nothing; its definition may.
        completes = each.kind == "definition" and (each.namespace, each.name) in defined
        if each.kind in {"macro", "function"} or completes or each.name not in had:
            return True
    return False


def _source(action: Action) -> str:
    # The last three words of a compiler's argv are the source, and where the object goes.
    return action.argv[-3]


def _preprocess(action: Action, module: ModulePlan, toolchain: DeviceToolchain) -> bytes | None:
    """What a unit's preprocessor writes, with line markers; None if that fails."""
    trees = {name: toolchain.trees[name] for name in action.trees} | {"threads": "1"}
    words = (execute_action.resolve(word, trees) for word in action.argv[:-2] if word != "-c")
    is_cuda = _source(action).endswith(CUDA_SUFFIXES)
    options = (word for each in _OPTIONS for word in (("-Xcompiler", each) if is_cuda else (each,)))
    argv = (*words, "-E", *options, "-o", _PREPROCESSED)
    with files.staging(toolchain.store.root / "work") as directory:
        for each in action.inputs:
            files.write_new(directory / each.path, module.plan.texts[each.name])
        done = run(Command(argv=argv, cwd=directory))
        return (directory / _PREPROCESSED).read_bytes() if done.returncode == 0 else None


def _is_users(paths: Collection[str], file: str) -> bool:
    """Whether a file is the user's; ``#line`` may give it any name."""
    label = bool(file) and "/" not in file and not file.startswith(("<built-in", "<command"))
    return label or file in paths

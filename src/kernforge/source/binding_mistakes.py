# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how a kernel project binds its operators, seen in the text of its sources."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from kernforge.source import cpp_text, op_calls, op_namespace, op_schema, op_types

_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,")
_PYBIND_PROBLEM = (
    "PYBIND11_MODULE makes a module for one Python and one torch; a kernel project registers "
    "operators, and one build serves every Python"
)
_PYBIND_FIX = (
    "write TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def(...); ops.impl(...); } and "
    "REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in its place, with "
    '#include "registration.h"; a project that keeps pybind11 keeps its setup.py'
)
# A copy of registration.h has these words, too: ``check`` looks at what was built.
_MODULE = re.compile(r"\bREGISTER_EXTENSION\s*\(|\bPyInit_|\w*MODULE\w*\s*\(")
_MODULE_FIX = (
    "write REGISTER_EXTENSION(TORCH_EXTENSION_NAME) at the end of one of the sources, with "
    '#include "registration.h"'
)
_NAMESPACE_FIX = (
    "write TORCH_EXTENSION_NAME for the namespace where operators are defined and where they are "
    'implemented: TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), with #include "registration.h"'
)
_SCHEMA_FIX = (
    "a schema is name(Type argument, Type argument=default) -> Type, with the types Tensor, int, "
    "float, bool, str, and Tensor? or int[] of them"
)


class SourceMistake(NamedTuple):
    """Something wrong in a line of a source; ``path`` is relative to the project."""

    path: str
    line: int
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def find(
    sources: Mapping[str, str], everything: Mapping[str, str], python: Mapping[str, str]
) -> Iterator[SourceMistake]:
    """Modules of pybind11 or none, and operators that torch or the package cannot call.

    What depends on a preprocessor condition is left to the compiler.

    Args:
        sources: text of the sources that are compiled, by path.
        everything: text of the sources of all backends.
        python: text of the package's modules.
    """
    for path, text in sources.items():
        for match in cpp_text.unconditional(_PYBIND, text) if "PYBIND11_MODULE" in text else ():
            line = cpp_text.line_of(text, match.start())
            yield SourceMistake(path, line, _PYBIND_PROBLEM, _PYBIND_FIX)
        for line, schema in op_schema.schema_lines(text):
            if reason := op_schema.mistake(schema):
                problem = f"torch cannot read the schema {schema!r}: {reason}"
                yield SourceMistake(path, line, problem, _SCHEMA_FIX)
    for path, line, problem in op_types.disagreements(sources):
        yield SourceMistake(path, line, problem, op_types.FIX)
    blocks = _blocks(sources)
    imported = any("_ops" in text for text in python.values())
    if imported and not any(_MODULE.search(cpp_text.code(text)) for text in sources.values()):
        for path, block in blocks[:1]:
            problem = "no source has REGISTER_EXTENSION, so that Python cannot import what is built"
            yield SourceMistake(path, block.line, problem, _MODULE_FIX)
    for path, block in blocks:
        spaces = {b.namespace for _, b in blocks if b.defines and b.names & block.names}
        if not block.defines and spaces and block.namespace not in spaces:
            problem = f"{block.macro} implements operators that are defined in another namespace"
            yield SourceMistake(path, block.line, problem, _NAMESPACE_FIX)
    yield from _calls(everything, python)


def _blocks(sources: Mapping[str, str]) -> list[tuple[str, op_namespace.Block]]:
    """The blocks that register operators, but for those whose namespace a macro may name."""
    macros = set(re.findall(r"#[ \t]*define\s+(\w+)", "\n".join(sources.values())))
    found = [(p, block) for p, text in sources.items() for block in op_namespace.blocks(text)]
    return [(path, block) for path, block in found if block.namespace not in macros]


def _calls(sources: Mapping[str, str], python: Mapping[str, str]) -> Iterator[SourceMistake]:
    """Uses of operators that no source defines, or not in the namespace of the build."""
    names = op_schema.names(sources.values())
    blocks = _blocks(sources)
    spaces = {block.namespace for _, block in blocks if block.defines}
    if not names or not spaces:
        return
    read = {path: op_calls.read(text) for path, text in python.items()}
    known = names.union(*(calls.defined for calls in read.values()))
    own = {n for _, b in blocks if b.defines and not b.namespace for n in b.names}
    elsewhere = {n: (p, b) for p, b in blocks if b.defines for n in b.names - own}
    for path, block in blocks:
        for name in sorted(block.names - known) if block.namespace in spaces else ():
            problem = f"{block.macro} implements {name}, and no source defines that operator"
            yield SourceMistake(path, block.line, problem, _near(name, known))
    for path, calls in read.items():
        for name, line in calls.lines.items():
            if name in elsewhere:
                where, block = elsewhere[name]
                problem = f"{block.macro} defines {name}, which {path}:{line} calls in this build's"
                yield SourceMistake(where, block.line, f"{problem} namespace", _NAMESPACE_FIX)
            elif name not in known:
                problem = f"no source defines the operator {name}, which is called here"
                yield SourceMistake(path, line, problem, _near(name, known))


def _near(name: str, known: Collection[str]) -> str:
    """What to do about an operator that is not known."""
    near = difflib.get_close_matches(name, known, 1)
    return f"write {near[0]}" if near else f"define {name}, or remove its use"

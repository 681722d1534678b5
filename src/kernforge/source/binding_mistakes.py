# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how a kernel project binds its operators, seen in the text of its sources."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from kernforge.source import cpp_text, op_schema, op_types

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


def find(sources: Mapping[str, str]) -> Iterator[SourceMistake]:
    """Modules of pybind11, and schemas that torch cannot read or whose functions differ from them.

    What depends on a preprocessor condition is left to the compiler.

    Args:
        sources: text of the sources that are compiled, by path.
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

# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how a kernel project binds its operators, seen in the text of its sources.

A module of pybind11, which cannot be built for every Python at once, and a schema that torch cannot
read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernforge.source import cpp_text, op_schema

_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceMistake:
    """Something wrong in a source.

    Attributes:
        path: the file, relative to the project.
        line: its line, counted from 1.
    """

    path: str
    line: int
    problem: str
    fix: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.problem}"


def pybind_modules(sources: Mapping[str, str]) -> Iterator[SourceMistake]:
    """Modules of pybind11 in the sources of a kernel project.

    One that is inside a preprocessor condition is left to the compiler.

    Args:
        sources: text of the sources that are compiled, by path.
    """
    for path, text in sources.items():
        for match in cpp_text.unconditional(_PYBIND, text) if "PYBIND11_MODULE" in text else ():
            yield SourceMistake(
                path=path,
                line=cpp_text.line_of(text, match.start()),
                problem="PYBIND11_MODULE makes a module for one Python and one torch; a kernel "
                "project registers operators, and one build serves every Python",
                fix="write TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def(...); "
                "ops.impl(...); } and REGISTER_EXTENSION(TORCH_EXTENSION_NAME) in its place, with "
                '#include "registration.h"; a project that keeps pybind11 keeps its setup.py',
            )


def unreadable_schemas(sources: Mapping[str, str]) -> Iterator[SourceMistake]:
    """Operator schemas that torch cannot read: it would end the process that loads them.

    Args:
        sources: text of the sources that are compiled, by path.
    """
    for path, text in sources.items():
        for line, schema in op_schema.schema_lines(text):
            if problem := op_schema.mistake(schema):
                yield SourceMistake(
                    path=path,
                    line=line,
                    problem=f"torch cannot read the schema {schema!r}: {problem}",
                    fix="a schema is name(Type argument, Type argument=default) -> Type, with the "
                    "types Tensor, int, float, bool, str, and Tensor? or int[] of them",
                )

# SPDX-License-Identifier: Apache-2.0
"""Mistakes in how a kernel project binds its operators, seen in the text of its sources.

A module of pybind11, which cannot be built for every Python at once; a schema that torch cannot
read; operators that are registered in one op namespace and called in another, or called and not
registered.
"""

from __future__ import annotations

import ast
import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernforge.source import cpp_text, op_schema

_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,")
_CONDITION = re.compile(r"^[ \t]*#[ \t]*(?P<word>if|ifdef|ifndef|endif)\b", re.MULTILINE)
_LIBRARY = re.compile(
    r"\b(?:STABLE_)?TORCH_LIBRARY(?:_FRAGMENT)?(?:_EXPAND)?\s*\(\s*(?P<name>\w+)\s*,"
)
OWN = "TORCH_EXTENSION_NAME"
"""Stands for the op namespace of the build, which has another name in each."""
_OPS_MODULE = "_ops"
# A namespace that Python itself fills: torch.library's functions take "namespace::name".
_IN_PYTHON = re.compile(r"""[\"'](\w+)::\w|\bLibrary\(\s*[\"'](\w+)[\"']""")
_OF_TORCH = frozenset(
    {"aten", "prim", "prims", "quantized", "mkldnn", "inductor", "c10d_functional"}
)
# A package that defines operators itself may make up their names.
_DEFINES = re.compile(r"\b(?:custom_op|triton_op)\b|\bLibrary\(|\.define\(")
_NOT_NAMESPACES = frozenset({"load_library", "loaded_libraries", "import_module"})


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


@dataclass(frozen=True, slots=True, kw_only=True)
class NamespaceCall:
    """An op namespace that a file registers or calls, or an operator that it calls.

    Attributes:
        name: its name; ``OWN`` is the namespace of the build.
        line: its line, counted from 1.
    """

    name: str
    path: str
    line: int


def pybind_modules(sources: Mapping[str, str]) -> Iterator[SourceMistake]:
    """Modules of pybind11 in the sources of a kernel project.

    One that is inside a preprocessor condition is left to the compiler.

    Args:
        sources: text of the sources that are compiled, by path.
    """
    for path, text in sources.items():
        code = cpp_text.code(text) if "PYBIND11_MODULE" in text else ""
        for match in _PYBIND.finditer(code):
            words = [m["word"] for m in _CONDITION.finditer(code, 0, match.start())]
            if sum(-1 if word == "endif" else 1 for word in words) > 0:
                continue
            yield SourceMistake(
                path=path,
                line=cpp_text.line_of(code, match.start()),
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


def unregistered_operators(
    package: Mapping[str, str], sources: Sequence[str]
) -> Iterator[NamespaceCall]:
    """Operators of the build that the package calls and no source names.

    A package that defines operators in Python, and sources whose macros join names, are left alone.

    Args:
        package: text of the package's Python files, by path.
        sources: text of everything that may register an operator.
    """
    if any("##" in text for text in sources) or any(map(_DEFINES.search, package.values())):
        return
    for path, text in sorted(package.items()):
        for name, line in _operators(text):
            if not any(name in source for source in sources):
                yield NamespaceCall(name=name, path=path, line=line)


def unregistered(call: NamespaceCall, registered: Sequence[str]) -> SourceMistake:
    """The mistake of a call of an operator that nothing registers.

    Args:
        registered: names that are registered.
    """
    near = difflib.get_close_matches(call.name, registered, n=1)
    return SourceMistake(
        path=call.path,
        line=call.line,
        problem=f"ops.{call.name} is called, and no source registers it",
        fix=f"did you mean ops.{near[0]}?"
        if near
        else "register it with ops.def(...) in the TORCH_LIBRARY_EXPAND block of the binding",
    )


def _operators(text: str) -> Iterator[tuple[str, int]]:
    """The operators that a module takes from ``ops`` of ``._ops``, with the lines."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # the import at the check says it better
        return
    names = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").rpartition(".")[2] == _OPS_MODULE
        for alias in node.names
        if alias.name == "ops"
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            of_build = node.value.id in names and isinstance(node.ctx, ast.Load)
            if of_build and not node.attr.startswith("_") and node.attr != "name":
                yield node.attr, node.lineno


def unfilled_namespaces(
    sources: Mapping[str, str], package: Mapping[str, str]
) -> Iterator[SourceMistake]:
    """Op namespaces called but not registered, where another is registered but not called.

    Args:
        sources: text of the sources that are compiled and of their headers, by path.
        package: text of the package's Python files, by path.
    """
    registered = [use for path, text in sources.items() for use in _registered(path, text)]
    called = [*called_namespaces(package)]
    in_python = {m[1] or m[2] for text in package.values() for m in _IN_PYTHON.finditer(text)}
    filled = {use.name for use in registered} | in_python | _OF_TORCH
    called_names = {use.name for use in called}
    vain = [use for use in registered if use.name not in called_names]
    empty = [use for use in called if use.name not in filled]
    if not vain or not empty:
        return
    there, here = vain[0], empty[0]
    names = _shown(there), _shown(here)
    yield SourceMistake(
        path=there.path,
        line=there.line,
        problem=f"operators are registered in {names[0]}, and {here.path}:{here.line} calls them "
        f"in {names[1]}, which nothing registers",
        fix="write TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops), and take `ops` from ._ops in "
        "Python: a namespace for each build lets two versions load in one process. Or keep the "
        f"name, and call torch.ops.{there.name} in Python"
        if there.name != OWN
        else f"take the operators from the build: `from ._ops import ops` in {here.path}",
    )


def called_namespaces(package: Mapping[str, str]) -> Iterator[NamespaceCall]:
    """The op namespaces that a package calls, as far as its text shows them.

    Args:
        package: text of the package's Python files, by path.
    """
    for path, text in sorted(package.items()):
        try:
            tree = ast.parse(text)
        except SyntaxError:  # the import at the check says it better
            continue
        for name, line in _calls(tree):
            yield NamespaceCall(name=name, path=path, line=line)


def _shown(use: NamespaceCall) -> str:
    if use.name == OWN:
        return "the namespace of the build (TORCH_EXTENSION_NAME, `ops` of ._ops)"
    return f"torch.ops.{use.name}"


def _registered(path: str, text: str) -> Iterator[NamespaceCall]:
    code = cpp_text.code(text) if "TORCH_LIBRARY" in text else ""
    for match in _LIBRARY.finditer(code):
        line = cpp_text.line_of(code, match.start())
        if not code.splitlines()[line - 1].lstrip().startswith("#"):  # a macro's definition
            yield NamespaceCall(name=match["name"], path=path, line=line)


def _calls(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The op namespaces that a module calls, with the lines."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            whole = (node.module or "").rpartition(".")[2] == _OPS_MODULE
            if whole and names & {"ops", "add_op_namespace_prefix"}:
                yield OWN, node.lineno
        elif isinstance(node, ast.Attribute):
            if ast.unparse(node) == f"{_OPS_MODULE}.ops":
                yield OWN, node.lineno
            elif ast.unparse(node.value) == "torch.ops" and node.attr not in _NOT_NAMESPACES:
                yield node.attr, node.lineno

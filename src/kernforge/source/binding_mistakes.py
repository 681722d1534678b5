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
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernforge.source import cpp_text, op_namespace, op_schema

_PYBIND = re.compile(r"\bPYBIND11_MODULE\s*\(\s*\w+\s*,")
OWN = "TORCH_EXTENSION_NAME"
"""Placeholder for the op namespace of the build, whose name differs in each."""
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
    """An op namespace that a file registers or calls, or an operator of the build that it calls.

    Attributes:
        name: of the namespace; ``OWN`` is that of the build.
        line: its line, counted from 1.
        operator: its name, where it is taken from ``ops`` of ``._ops``.
    """

    name: str
    path: str
    line: int
    operator: str = ""


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


def unregistered_operators(
    package: Mapping[str, str], sources: Sequence[str], others: Callable[[], bytes]
) -> Iterator[SourceMistake]:
    """Operators of the build that the package calls and no source names.

    A package that defines operators in Python, and sources whose macros join names, are left alone.

    Args:
        package: text of the package's Python files, by path.
        sources: text of everything that may register an operator.
        others: reads the project's other files: a compiler that kernforge does not drive may
            compile one.
    """
    if any("##" in text for text in sources) or any(map(_DEFINES.search, package.values())):
        return
    calls = [call for call in _calls(package) if call.operator]
    missing = [call for call in calls if not any(call.operator in text for text in sources)]
    rest = others() if missing else b""
    registered = [name for text in sources for name in op_schema.operator_names(text)]
    for call in missing:
        if call.operator.encode() in rest:
            continue
        near = difflib.get_close_matches(call.operator, registered, n=1)
        yield SourceMistake(
            path=call.path,
            line=call.line,
            problem=f"ops.{call.operator} is called, and no source registers it",
            fix=f"did you mean ops.{near[0]}?"
            if near
            else "register it with ops.def(...) in the TORCH_LIBRARY_EXPAND block of the binding",
        )


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
    uncalled = [use for use in registered if use.name not in called_names]
    unregistered = [use for use in called if use.name not in filled]
    if not uncalled or not unregistered:
        return
    there, here = uncalled[0], unregistered[0]
    names = _display_name(there), _display_name(here)
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
    return (call for call in _calls(package) if not call.operator)


def _display_name(use: NamespaceCall) -> str:
    if use.name == OWN:
        return "the namespace of the build (TORCH_EXTENSION_NAME, `ops` of ._ops)"
    return f"torch.ops.{use.name}"


def _registered(path: str, text: str) -> Iterator[NamespaceCall]:
    code = cpp_text.code(text) if "TORCH_LIBRARY" in text else ""
    for match in op_namespace.LIBRARY.finditer(code):
        line = cpp_text.line_of(code, match.start())
        defines = code.splitlines()[line - 1].lstrip().startswith("#")  # a macro
        if match["kind"] != "_IMPL" and not defines:
            yield NamespaceCall(name=match["name"], path=path, line=line)


def _calls(package: Mapping[str, str]) -> Iterator[NamespaceCall]:
    """Op namespaces that a package's files call, and operators of the build's."""
    for path, text in sorted(package.items()):
        try:
            nodes = [*ast.walk(ast.parse(text))]
        except SyntaxError:  # the import at the check says it better
            continue
        imports = [
            (node.lineno, alias)
            for node in nodes
            if isinstance(node, ast.ImportFrom)
            and (node.module or "").rpartition(".")[2] == _OPS_MODULE
            for alias in node.names
        ]
        own = {alias.asname or alias.name for _, alias in imports if alias.name == "ops"}
        for line, alias in imports:
            if alias.name in {"ops", "add_op_namespace_prefix"}:
                yield NamespaceCall(name=OWN, path=path, line=line)
        for node in nodes:
            if isinstance(node, ast.Attribute):
                for name, operator in _called(node, own):
                    yield NamespaceCall(name=name, path=path, line=node.lineno, operator=operator)


def _called(node: ast.Attribute, own: Collection[str]) -> Iterator[tuple[str, str]]:
    """The op namespace of an attribute, and its operator if the namespace is the build's.

    Args:
        own: names of the build's ``ops`` in the module.
    """
    match node:
        case ast.Attribute(value=ast.Name(id=module), attr=name, ctx=ast.Load()) if module in own:
            if name != "name" and not name.startswith("_"):
                yield OWN, name
        case ast.Attribute(value=ast.Name(id="_ops"), attr="ops"):
            yield OWN, ""
        case ast.Attribute(value=ast.Attribute(value=ast.Name(id="torch"), attr="ops"), attr=name):
            if name not in _NOT_NAMESPACES:
                yield name, ""
        case _:
            pass

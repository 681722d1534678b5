# SPDX-License-Identifier: Apache-2.0
"""The operators of its own build that a kernel's Python calls, read from the syntax tree."""

from __future__ import annotations

import ast
from typing import NamedTuple

_MODULE, _OPS, _PREFIX = "_ops", "ops", "add_op_namespace_prefix"
_DEFINE = {"custom_op", "triton_op", "define"}


class Calls(NamedTuple):
    """Lines of the operators that a module calls or registers something for, by their names.

    Attributes:
        defined: operators that it defines itself, or asks for before it calls them.
    """

    lines: dict[str, int]
    defined: set[str]


def read(text: str) -> Calls:
    """Read a module; nothing where it is not Python or makes libraries of torch itself."""
    calls = Calls({}, set())
    if _MODULE not in text or "Library(" in text:
        return calls
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # the import says more
        return calls
    spaces = {
        alias.asname or alias.name
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.level and node.module == _MODULE
        for alias in node.names
        if alias.name == _OPS
    }
    spaces -= {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.Attribute) and _is_space(node.value, spaces):
            if node.attr != "name" and not node.attr.startswith("__"):  # torch's own attributes
                calls.lines.setdefault(node.attr, node.lineno)
        elif isinstance(node, ast.Call) and node.args:
            _read_call(node, calls)
    return calls


def _is_space(node: ast.expr, spaces: set[str]) -> bool:
    """Whether an expression is the namespace of the build."""
    match node:
        case ast.Name(id=name):
            return name in spaces
        case ast.Attribute(value=ast.Name(id=module), attr=name):
            return (module, name) == (_MODULE, _OPS)
        case _:
            return False


def _read_call(call: ast.Call, calls: Calls) -> None:
    """Note what a call says of an operator: a definition, a registration or a question."""
    first, function = call.args[0], _name(call)
    if function == _PREFIX and isinstance(first, ast.Constant):
        calls.lines.setdefault(str(first.value).partition(".")[0], call.lineno)
    elif function in _DEFINE and isinstance(first, ast.Call) and first.args:
        calls.defined.add(str(getattr(first.args[0], "value", "")).partition("(")[0])
    elif function in {"hasattr", "getattr"}:
        calls.defined.add(str(getattr(call.args[-1], "value", "")))


def _name(call: ast.Call) -> str:
    """Last part of a called function's name."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")

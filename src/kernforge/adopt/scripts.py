# SPDX-License-Identifier: Apache-2.0
"""What Python files say of extension modules, without running them: calls of the JIT."""

from __future__ import annotations

import ast
import operator
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.system import untrusted_tree

_MODULES = ("torch.utils.cpp_extension", "kernforge")
_ORDER = {
    "load": ("name", "sources", "extra_cflags", "extra_cuda_cflags", "extra_ldflags"),
    "load_inline": ("name", "cpp_sources", "cuda_sources", "functions"),
}
_LONGEST = 16 << 20  # bytes of a source that a script reads
_ON_PATHS: Mapping[str, Callable[..., Any]] = {
    "os.path.join": os.path.join,
    "os.path.dirname": os.path.dirname,
    "os.path.abspath": str,
    "os.path.realpath": str,
    "pathlib.Path": Path,
    "open": lambda path, *_: Path(path),
    "str": str,
}


@dataclass(frozen=True, slots=True)
class Computed:
    """A value that only a run of the script would give, by its expression."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call of ``load`` or ``load_inline``.

    Attributes:
        options: its arguments by name; lists may hold ``Computed`` values.
    """

    function: str
    options: Mapping[str, Any]
    line: int


def calls(path: Path) -> tuple[Call, ...]:
    """The calls of the JIT in a script.

    Raises:
        SyntaxError: it is not Python.
        UnicodeDecodeError: it is not UTF-8.
    """
    tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    reader = _Literals(tree, path)
    found = []
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        head, _, function = reader.name_of(node.func).rpartition(".")
        if head in _MODULES and function in _ORDER:
            given = zip(_ORDER[function], node.args, strict=False)
            options = {name: reader.value(argument) for name, argument in given}
            options |= {k.arg: reader.value(k.value) for k in node.keywords if k.arg}
            found.append(Call(function=function, options=options, line=node.lineno))
    return tuple(sorted(found, key=lambda call: call.line))


class _Literals:
    """Values of literal expressions: names that are bound once, texts, paths beside the script."""

    def __init__(self, tree: ast.Module, path: Path) -> None:
        self._root = path.parent
        self._imported: dict[str, str] = {}
        bound: dict[str, list[ast.expr]] = {"__file__": [ast.Constant(str(path))]}
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self._imported |= _imported(node)
            for target, value in _bindings(node):
                if isinstance(target, ast.Name):
                    bound.setdefault(target.id, []).append(value)
        self._bound = {name: values[0] for name, values in bound.items() if len(values) == 1}

    def name_of(self, node: ast.expr) -> str:
        """The dotted name that an expression has outside of the script; empty if it has none."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.name_of(node.value)}.{node.attr}"
        return ""

    def value(self, node: ast.expr) -> Any:
        """The value of an expression, or ``Computed``."""
        try:
            return self._value(node)
        except (LookupError, OSError, RecursionError, TypeError, ValueError):
            return Computed(ast.unparse(node))

    def _value(self, node: ast.expr) -> Any:
        match node:
            case ast.Constant():
                return node.value
            case ast.List() | ast.Tuple() | ast.Set():
                return [self.value(each) for each in node.elts]
            case ast.Dict():
                pairs = zip(node.keys, node.values, strict=True)
                return {self._value(key): self.value(each) for key, each in pairs if key}
            case ast.JoinedStr():
                return "".join(str(self._value(each)) for each in node.values)
            case ast.FormattedValue(conversion=-1, format_spec=None):
                return self._value(node.value)
            case ast.BinOp(op=ast.Add()):
                return operator.add(self._value(node.left), self._value(node.right))
            case ast.Name():
                return self._value(self._bound[node.id])
            case _:
                pass
        return self._path(node)

    def _path(self, node: ast.expr) -> Any:
        """A path, or the text of its file."""
        match node:
            case ast.BinOp(op=ast.Div(), left=left, right=right):
                return Path(self._value(left)) / self._value(right)
            case ast.Attribute(attr="parent", value=path):
                return Path(self._value(path)).parent
            case ast.Subscript(value=ast.Attribute(attr="parents", value=path), slice=number):
                return Path(self._value(path)).parents[self._value(number)]
            case ast.Call(func=ast.Attribute(attr="resolve" | "absolute", value=path)):
                return self._value(path)
            case ast.Call(func=ast.Attribute(attr="read" | "read_text", value=path)):
                return self._read(self._value(path))
            case ast.Call() if function := _ON_PATHS.get(self.name_of(node.func)):
                return function(*(self._value(each) for each in node.args))
            case _:
                pass
        raise ValueError("computed")

    def _read(self, path: Path) -> str:
        """The text of a file of the project; a ``ValueError`` of one outside."""
        found = text_in(self._root, str(path))
        if found is None:
            raise ValueError("no file of the project")
        return found


def _imported(node: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """The names that an import binds, and what each stands for."""
    if isinstance(node, ast.ImportFrom):
        return {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    tops = ((alias, alias.name.partition(".")[0]) for alias in node.names)
    return {alias.asname or top: alias.name if alias.asname else top for alias, top in tops}


def _bindings(node: ast.AST) -> Iterator[tuple[ast.AST | None, ast.expr]]:
    """What a statement binds to which value; twice where a name changes."""
    if isinstance(node, ast.Assign):
        yield from ((target, node.value) for target in node.targets)
    elif isinstance(node, ast.AnnAssign) and node.value:
        yield node.target, node.value
    elif isinstance(node, ast.AugAssign | ast.For):
        yield from ((node.target, node.target),) * 2
    elif isinstance(node, ast.withitem):
        yield node.optional_vars, node.context_expr


def text_in(root: Path, path: str) -> str | None:
    """The text of a file of a project; None of what lies elsewhere, behind a link too."""
    top = root.resolve()
    real = (top / path).resolve()
    if not real.is_relative_to(top) or not real.is_file():
        return None
    name = real.relative_to(top).as_posix()
    data = untrusted_tree.read_bytes(top, name, limit=_LONGEST, hard_links=True)
    return data.decode(errors="surrogateescape")

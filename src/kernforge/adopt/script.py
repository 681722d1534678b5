# SPDX-License-Identifier: Apache-2.0
"""Read what a Python program asks for without running it.

A setup.py, or a script that calls ``load_inline``, is followed statement by statement: literals,
lists, strings, paths, loops over files and functions of the program itself are evaluated; imports
are names, and a table answers what such programs ask of torch and of the machine. Everything else
is ``Unknown`` with its reason, and never run. Files of the project are listed and read, and no others.
"""

from __future__ import annotations

import ast
import glob
import itertools
import posixpath
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.adopt import answers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

RECORDED = frozenset(
    {"setup", "CUDAExtension", "CppExtension", "SyclExtension", "Extension", "load", "load_inline"}
)
"""Calls that are kept, by the last part of the name."""
_MODULES = ("setuptools", "distutils", "torch.utils.cpp_extension", "kernforge")
_STEPS = 200_000
_DEPTH = 30


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that only running the program would give.

    Attributes:
        reason: what it comes from, as in ``subprocess.check_output(...)``.
        line: where.
    """

    reason: str
    line: int

    def __bool__(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Named:
    """A name of an imported module, as in ``os.path``."""

    name: str


@dataclass(frozen=True, slots=True)
class _OpenFile:
    """What ``open`` gives: a file of the project."""

    path: Path


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """A recorded call.

    Attributes:
        function: last part of its name, as in ``CUDAExtension``.
        arguments: by position.
        options: by keyword.
        line: where it begins.
        lines: line of each argument's expression, by position or keyword.
    """

    function: str
    arguments: tuple[Any, ...]
    options: Mapping[str, Any]
    line: int
    lines: Mapping[int | str, int]

    def get(self, name: str, position: int | None = None) -> Any:
        """The argument of a name, or at a position; None if the call does not have it."""
        if name in self.options:
            return self.options[name]
        if position is not None and position < len(self.arguments):
            return self.arguments[position]
        return None

    def line_of(self, name: str, position: int | None = None) -> int:
        """Line of the expression of an argument."""
        return self.lines.get(name, self.lines.get(-1 if position is None else position, self.line))


@dataclass(frozen=True, slots=True)
class _ProgramFunction:
    node: ast.FunctionDef | ast.Lambda
    scope: Mapping[str, Any]


class _ReturnError(Exception):
    def __init__(self, value: Any) -> None:
        self.value = value


class _LoopError(Exception):
    """``break`` and ``continue``."""

    def __init__(self, *, ends: bool) -> None:
        self.ends = ends


class _TooLongError(Exception):
    """The program takes more steps than any such file needs."""


@dataclass(slots=True)
class Reader:
    """Follows one program.

    Attributes:
        path: the file; its directory is the working directory.
        calls: recorded calls in order.
        doubts: line and reason of each decision that depended on something unknown.
    """

    path: Path
    calls: list[Call] = field(default_factory=list)
    doubts: dict[int, str] = field(default_factory=dict)
    _steps: int = 0
    _depth: int = 0
    _scope: dict[str, Any] = field(default_factory=dict)

    def read(self, text: str) -> None:
        """Follow the program.

        Raises:
            SyntaxError: the text is not Python.
        """
        tree = ast.parse(text, filename=str(self.path))
        self._scope = {"__name__": "__main__", "__file__": str(self.path), "__doc__": None}
        try:
            self._block(tree.body)
        except (_ReturnError, _LoopError):
            pass
        except (_TooLongError, RecursionError):
            self.doubts[1] = "the program is too long to be followed to its end"

    @property
    def _root(self) -> Path:
        return self.path.parent

    # -- statements --------------------------------------------------------------------------

    def _block(self, body: list[ast.stmt]) -> None:
        for statement in body:
            self._steps += 1
            if self._steps > _STEPS:
                raise _TooLongError
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:  # noqa: C901, PLR0912 - one branch a statement
        match node:
            case ast.Import():
                for alias in node.names:
                    whole = alias.name if alias.asname else alias.name.partition(".")[0]
                    self._scope[alias.asname or whole] = Named(whole)
            case ast.ImportFrom():
                for alias in node.names:
                    name = f"{node.module or ''}.{alias.name}"
                    self._scope[alias.asname or alias.name] = _constant(name)
            case ast.Assign():
                value = self._value(node.value)
                for target in node.targets:
                    self._assign(target, value)
            case ast.AnnAssign(value=ast.expr() as given):
                self._assign(node.target, self._value(given))
            case ast.AugAssign():
                self._augment(node)
            case ast.Expr():
                self._value(node.value)
            case ast.If():
                self._if(node)
            case ast.For():
                self._for(node)
            case ast.FunctionDef():
                self._scope[node.name] = _ProgramFunction(node, self._scope)
            case ast.ClassDef():
                self._scope[node.name] = Unknown(f"class {node.name}", node.lineno)
            case ast.Return():
                raise _ReturnError(self._value(node.value) if node.value else None)
            case ast.With():
                for item in node.items:
                    if item.optional_vars is not None:
                        self._assign(item.optional_vars, self._value(item.context_expr))
                self._block(node.body)
            case ast.Try():
                self._block(node.body)
                self._block(node.orelse)
                self._block(node.finalbody)
            case ast.Break() | ast.Continue():
                raise _LoopError(ends=isinstance(node, ast.Break))
            case ast.While():
                self.doubts[node.lineno] = f"`while {ast.unparse(node.test)}` is not followed"
            case _:
                pass

    def _if(self, node: ast.If) -> None:
        test = self._value(node.test)
        if isinstance(test, Unknown):
            refuses = any(isinstance(statement, ast.Raise) for statement in node.body)
            taken = "not taken" if refuses else "taken"
            self.doubts[node.lineno] = (
                f"`if {ast.unparse(node.test)}` depends on {test.reason}; it is {taken}"
            )
            test = not refuses
        self._block(node.body if test else node.orelse)

    def _for(self, node: ast.For) -> None:
        values = self._value(node.iter)
        if isinstance(values, Unknown):
            self.doubts[node.lineno] = (
                f"`for {ast.unparse(node.target)} in {ast.unparse(node.iter)}` depends on "
                f"{values.reason}; it is not followed"
            )
            return
        for value in answers.iterated(values):
            self._assign(node.target, value)
            try:
                self._block(node.body)
            except _LoopError as loop:
                if loop.ends:
                    return
        self._block(node.orelse)

    def _assign(self, target: ast.expr, value: Any) -> None:
        match target:
            case ast.Name():
                self._scope[target.id] = value
            case ast.Tuple() | ast.List():
                parts = list(answers.iterated(value)) if answers.is_iterable(value) else []
                for position, part in enumerate(target.elts):
                    unknown = value if isinstance(value, Unknown) else _unfollowed(target)
                    self._assign(part, parts[position] if position < len(parts) else unknown)
            case ast.Subscript():
                holder, key = self._value(target.value), self._value(target.slice)
                if isinstance(holder, dict | list) and not isinstance(key, Unknown):
                    try:
                        holder[key] = value
                    except answers.MISTAKES:
                        self.doubts[target.lineno] = f"`{ast.unparse(target)}` cannot be assigned"
            case _:
                pass

    def _augment(self, node: ast.AugAssign) -> None:
        value = self._value(node.value)
        old = self._value(_loaded(node.target))
        try:
            if isinstance(old, list) and isinstance(node.op, ast.Add):
                answers.extend(old, _listed(value))
                return
            new = _operate(type(node.op), old, value)
        except answers.MISTAKES:
            new = Unknown(ast.unparse(node), node.lineno)
        self._assign(node.target, new)

    # -- expressions -------------------------------------------------------------------------

    def _value(self, node: ast.expr) -> Any:
        self._steps += 1
        if self._steps > _STEPS:
            raise _TooLongError
        try:
            return self._evaluate(node)
        except answers.MISTAKES:
            return _unfollowed(node)

    def _evaluate(self, node: ast.expr) -> Any:  # noqa: C901, PLR0912 - one branch a kind
        match node:
            case ast.Constant():
                return node.value
            case ast.Name():
                return self._name(node)
            case ast.List():
                return self._elements(node.elts)
            case ast.Tuple():
                return tuple(self._elements(node.elts))
            case ast.Set():
                return set(self._elements(node.elts))
            case ast.Dict():
                return self._dict(node)
            case ast.JoinedStr():
                return self._joined(node)
            case ast.FormattedValue():
                return self._value(node.value)
            case ast.BinOp():
                return _operate(type(node.op), self._value(node.left), self._value(node.right))
            case ast.BoolOp():
                return self._bool(node)
            case ast.UnaryOp():
                return self._unary(node)
            case ast.Compare():
                return self._compare(node)
            case ast.IfExp():
                test = self._value(node.test)
                if isinstance(test, Unknown):
                    return test
                return self._value(node.body if test else node.orelse)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.Lambda():
                return _ProgramFunction(node, self._scope)
            case ast.ListComp() | ast.GeneratorExp() | ast.SetComp():
                found = self._comprehension(node.generators, lambda: self._value(node.elt))
                return set(found) if isinstance(node, ast.SetComp) else found
            case ast.DictComp():
                pairs = self._comprehension(
                    node.generators, lambda: (self._value(node.key), self._value(node.value))
                )
                return pairs if isinstance(pairs, Unknown) else dict(pairs)
            case _:
                return _unfollowed(node)

    def _name(self, node: ast.Name) -> Any:
        if node.id in self._scope:
            return self._scope[node.id]
        if node.id in answers.BUILTINS or node.id == "open":
            return Named(f"builtins.{node.id}")
        return Unknown(node.id, getattr(node, "lineno", 0))

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                answers.extend(found, _listed(self._value(node.value)))
            else:
                found.append(self._value(node))
        return found

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        result: dict[Any, Any] = {}
        for key, given in zip(node.keys, node.values, strict=True):
            value = self._value(given)
            if key is not None:
                name = self._value(key)
                if not isinstance(name, Unknown):
                    result[name] = value
            elif isinstance(value, dict):
                result.update(value)
        return result

    def _joined(self, node: ast.JoinedStr) -> Any:
        parts = [self._value(part) for part in node.values]
        if any(isinstance(part, Unknown | Named) for part in parts):
            return _unfollowed(node)
        return answers.text(*parts)

    def _bool(self, node: ast.BoolOp) -> Any:
        decides = isinstance(node.op, ast.Or)
        unknown: Unknown | None = None
        value: Any = None
        for part in node.values:
            value = self._value(part)
            if isinstance(value, Unknown):
                unknown = unknown or value
            elif bool(value) is decides:
                return value
        return unknown or value

    def _unary(self, node: ast.UnaryOp) -> Any:
        value = self._value(node.operand)
        if isinstance(value, Unknown):
            return value
        if isinstance(node.op, ast.Not):
            return not value
        if isinstance(node.op, ast.USub) and isinstance(value, int | float):
            return -value
        return _unfollowed(node)

    def _compare(self, node: ast.Compare) -> Any:
        left = self._value(node.left)
        for op, other in zip(node.ops, node.comparators, strict=True):
            right = self._value(other)
            for side in (left, right):
                if isinstance(side, Unknown):
                    return side
            if not answers.COMPARISONS[type(op)](left, right):
                return False
            left = right
        return True

    def _attribute(self, node: ast.Attribute) -> Any:
        holder = self._value(node.value)
        if isinstance(holder, Named):
            return _constant(f"{holder.name}.{node.attr}")
        if isinstance(holder, Path) and node.attr in answers.PATH_VALUES:
            return getattr(holder, node.attr)
        return holder if isinstance(holder, Unknown) else _unfollowed(node)

    def _subscript(self, node: ast.Subscript) -> Any:
        holder = self._value(node.value)
        if isinstance(holder, Unknown):
            return holder
        if isinstance(node.slice, ast.Slice):
            low, high, step = (
                None if part is None else self._value(part)
                for part in (node.slice.lower, node.slice.upper, node.slice.step)
            )
            return holder[low:high:step]
        return holder[self._value(node.slice)]

    def _comprehension(
        self, generators: list[ast.comprehension], element: Callable[[], Any]
    ) -> Any:
        found: list[Any] = []
        before, self._scope = self._scope, dict(self._scope)
        try:
            unknown = self._generate(generators, element, found)
        finally:
            self._scope = before
        return unknown or found

    def _generate(
        self, generators: list[ast.comprehension], element: Callable[[], Any], found: list[Any]
    ) -> Unknown | None:
        if not generators:
            found.append(element())
            return None
        first, *rest = generators
        values = self._value(first.iter)
        if isinstance(values, Unknown):
            return values
        for value in answers.iterated(values):
            self._assign(first.target, value)
            tests = [self._value(test) for test in first.ifs]
            if unknown := next((test for test in tests if isinstance(test, Unknown)), None):
                return unknown
            if all(tests) and (unknown := self._generate(rest, element, found)):
                return unknown
        return None

    # -- calls -------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        arguments = self._elements(node.args)
        options: dict[str, Any] = {}
        lines: dict[int | str, int] = {i: a.lineno for i, a in enumerate(node.args)}
        for keyword in node.keywords:
            value = self._value(keyword.value)
            if keyword.arg is not None:
                options[keyword.arg] = value
                lines[keyword.arg] = keyword.value.lineno
            elif isinstance(value, dict):
                options.update({str(name): option for name, option in value.items()})
        if isinstance(node.func, ast.Attribute):
            holder = self._value(node.func.value)
            if not isinstance(holder, Named):
                return self._method(node, holder, node.func.attr, arguments, options)
        function = self._value(node.func)
        if isinstance(function, _ProgramFunction):
            return self._own(function, arguments, options)
        if isinstance(function, Named):
            return self._foreign(node, function.name, arguments, options, lines)
        return _unfollowed(node)

    def _own(
        self, function: _ProgramFunction, arguments: list[Any], options: Mapping[str, Any]
    ) -> Any:
        """Call a function of the program."""
        spec = function.node.args
        names = [a.arg for a in (*spec.posonlyargs, *spec.args)]
        defaults = dict(zip(reversed(names), reversed(spec.defaults), strict=False))
        scope = {name: self._value(default) for name, default in defaults.items()}
        for argument, given in zip(spec.kwonlyargs, spec.kw_defaults, strict=True):
            if given is not None:
                scope[argument.arg] = self._value(given)
        scope.update(zip(names, arguments, strict=False))
        if spec.vararg:
            scope[spec.vararg.arg] = tuple(arguments[len(names) :])
        known = {*names, *(a.arg for a in spec.kwonlyargs)}
        scope.update({name: value for name, value in options.items() if name in known})
        if spec.kwarg:
            scope[spec.kwarg.arg] = {n: v for n, v in options.items() if n not in known}
        if self._depth >= _DEPTH:
            raise _TooLongError
        before, self._scope = self._scope, {**function.scope, **scope}
        self._depth += 1
        try:
            if isinstance(function.node, ast.Lambda):
                return self._value(function.node.body)
            self._block(function.node.body)
        except _ReturnError as returned:
            return returned.value
        finally:
            self._scope = before
            self._depth -= 1
        return None

    def _method(
        self, node: ast.Call, holder: Any, name: str, arguments: list[Any], options: dict[str, Any]
    ) -> Any:
        if isinstance(holder, Unknown):
            return Unknown(holder.reason, node.lineno)
        adds = isinstance(holder, list) and name in {"append", "extend", "insert"}
        unknown = _first_unknown(arguments, options)
        if unknown is not None and not adds:
            return unknown
        if adds and name == "extend" and isinstance(arguments[0], Unknown):
            name = "append"
        if isinstance(holder, _OpenFile) and name == "read" and not arguments:
            return holder.path.read_text(encoding="utf-8")
        if isinstance(holder, Path) and name == "read_text":
            return self._open(holder).path.read_text(encoding="utf-8")
        if isinstance(holder, Path) and name in answers.PATH_METHODS:
            return self._path(holder, name, arguments)
        if name in answers.METHODS.get(type(holder), ()):
            if name == "sort":
                options.pop("key", None)
            answers.check_call(holder, name, [*arguments, *options.values()])
            result = getattr(holder, name)(*arguments, **options)
            return list(result) if name in {"items", "keys", "values"} else result
        return _unfollowed(node)

    def _open(self, path: Any, mode: str = "r", **_: Any) -> _OpenFile:
        """A file of the project to read.

        Raises:
            ValueError: it lies outside the project, or is opened to be written.
        """
        if mode not in {"r", "rt"}:
            raise ValueError("it is opened to be written")
        return _OpenFile(self._within(path).resolve())

    def _within(self, path: Any) -> Path:
        """A path of the project; what lies elsewhere is not looked at, not even its name.

        Raises:
            ValueError: it lies outside the project.
        """
        whole: Path = self._root / path
        if not whole.resolve().is_relative_to(self._root.resolve()):
            raise ValueError("it lies outside the project")
        return whole

    def _matches(self, start: Path, pattern: Any, *, recursive: bool) -> list[str]:
        """Paths below a directory of the project that match, all of them in the project.

        Raises:
            ValueError: the pattern leads out of the project.
        """
        parts = Path(str(pattern)).parts
        if ".." in parts or Path(str(pattern)).is_absolute():
            fixed = list(itertools.takewhile(lambda part: not glob.has_magic(part), parts))
            if ".." in parts[len(fixed) :]:
                raise ValueError("it leads out of the project")
            self._within(start / Path(*fixed))
        found = glob.glob(str(pattern), root_dir=self._within(start), recursive=recursive)  # noqa: PTH207
        return sorted(path for path in found if self._is_within(start / path))

    def _is_within(self, path: Path) -> bool:
        """Whether a path that was found is no link out of the project."""
        return (self._root / path).resolve().is_relative_to(self._root.resolve())

    def _path(self, holder: Path, name: str, arguments: list[Any]) -> Any:
        if name in {"resolve", "absolute"}:
            return self._root / holder
        if name in {"glob", "rglob", "iterdir"}:
            pattern = "*" if name == "iterdir" else str(arguments[0])
            pattern = f"**/{pattern}" if name == "rglob" else pattern
            found = self._matches(holder, pattern, recursive=True)
            return [holder / path for path in found]
        if name in {"exists", "is_file", "is_dir"}:
            return getattr(self._within(holder), name)()
        return getattr(holder, name)(*arguments)

    def _foreign(
        self,
        node: ast.Call,
        name: str,
        arguments: list[Any],
        options: dict[str, Any],
        lines: dict[int | str, int],
    ) -> Any:
        """Call a function of a module: record it, answer it, or say that it is unknown."""
        head, _, last = name.rpartition(".")
        if last in RECORDED and any(head == m or head.startswith(f"{m}.") for m in _MODULES):
            call = Call(
                function=last,
                arguments=tuple(arguments),
                options=options,
                line=node.lineno,
                lines=lines,
            )
            self.calls.append(call)
            return call
        function = answers.BUILTINS.get(last) if head == "builtins" else answers.ANSWERS.get(name)
        function = function or self._on_disk(name)
        if function is None:
            return _unfollowed(node)
        unknown = _first_unknown(arguments, options)
        takes_unknown = head == "builtins" and last in {"str", "print"}
        if unknown is not None and not takes_unknown:
            return unknown
        return function(*arguments, **{k: v for k, v in options.items() if k != "key"})

    def _on_disk(self, name: str) -> Callable[..., Any] | None:
        """Functions that look at files below the program's directory."""
        root = self._root

        def listed(pattern: Any, *, recursive: bool = False, **_: Any) -> list[str]:
            return self._matches(Path(), pattern, recursive=recursive)

        table: dict[str, Callable[..., Any]] = {
            "glob.glob": listed,
            "glob.iglob": listed,
            "os.getcwd": lambda: str(root),
            "os.listdir": lambda path=".": sorted(p.name for p in self._within(path).iterdir()),
            "os.path.abspath": lambda path: posixpath.normpath(root / path),
            "os.path.realpath": lambda path: posixpath.normpath(root / path),
            "os.path.relpath": lambda path, start=".": posixpath.relpath(root / path, root / start),
            "os.path.exists": lambda path: self._within(path).exists(),
            "os.path.isfile": lambda path: self._within(path).is_file(),
            "os.path.isdir": lambda path: self._within(path).is_dir(),
            "builtins.open": self._open,
            "pathlib.Path": Path,
            "pathlib.Path.cwd": lambda: root,
        }
        return table.get(name)


def _loaded(target: ast.expr) -> ast.expr:
    """The target of ``+=`` as a value."""
    return ast.parse(ast.unparse(target), mode="eval").body


def _constant(name: str) -> Any:
    """What an imported name means: a constant of the table, or the name."""
    return answers.CONSTANTS[name] if name in answers.CONSTANTS else Named(name)


def _operate(kind: type, left: Any, right: Any) -> Any:
    if kind is ast.Add and isinstance(left, list) and isinstance(right, Unknown):
        return [*left, right]
    if kind is ast.Add and isinstance(right, list) and isinstance(left, Unknown):
        return [left, *right]
    for side in (left, right):
        if isinstance(side, Unknown):
            return side
    return answers.OPERATORS[kind](left, right)


def _listed(value: Any) -> list[Any]:
    """What a list gets of a value: its elements, or what is unknown as one."""
    return [value] if isinstance(value, Unknown) else answers.iterated(value)


def _first_unknown(arguments: list[Any], options: Mapping[str, Any]) -> Unknown | None:
    given = (*arguments, *options.values())
    return next((each for each in given if isinstance(each, Unknown)), None)


def _unfollowed(node: ast.expr) -> Unknown:
    reason = f"{ast.unparse(node.func)}(...)" if isinstance(node, ast.Call) else ast.unparse(node)
    return Unknown(reason, node.lineno)

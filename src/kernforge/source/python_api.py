# SPDX-License-Identifier: Apache-2.0
"""The public names of a kernel's package with their signatures, read from its sources.

No module is imported, because the source may not be trusted. A name is public if ``__all__`` lists
it or, without ``__all__``, if it has no leading underscore and the package defines it or imports it
from one of its own modules. The names of ``layers``, which the layer API loads, are public too.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kernforge.errors import CheckError

Passed: TypeAlias = Literal["by position", "either way", "rest", "by name", "other names"]
"""How a caller may give a parameter; ``rest`` is ``*args``, ``other names`` is ``**kwargs``."""
Kind: TypeAlias = Literal["function", "class", "module", "value", "operator"]

_CUSTOM_OPS = frozenset({"custom_op", "triton_op"})
_GENERATED = ("_ops",)
"""The module that the builder writes; its names are not public."""
_SHOWN_DUNDERS = frozenset({"__init__", "__call__"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function or an operator.

    Attributes:
        name: name of the parameter; empty if an operator's schema gives none.
        passed: how a caller may give it.
        default: the default as source text; None if a caller must give a value.
        type: type of an operator's parameter, as in the schema; empty for a function.
    """

    name: str
    passed: Passed = "either way"
    default: str | None = None
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiEntry:
    """A public name of a package.

    Attributes:
        kind: function, class, module, value or operator.
        parameters: parameters of a function or operator; None if it has none that are known.
        returns: return type of an operator; empty for others.
    """

    kind: Kind
    parameters: tuple[Parameter, ...] | None = None
    returns: str = ""


def read_package(sources: Mapping[str, str]) -> dict[str, ApiEntry]:
    """Every public name of a package with its dotted path, such as ``layers.SiluAndMul.forward``.

    Operators that the package defines in Python have the path ``ops.<name>``.

    Args:
        sources: text of each ``.py`` file by its path in the package, with ``/``.

    Raises:
        CheckError: the running Python cannot parse a file.
    """
    package = _Package({_module_name(path): _Module(path, text) for path, text in sources.items()})
    names = dict(package.public((), frozenset()))
    if ("layers",) in package.modules:
        names["layers"] = ApiEntry(kind="module")
        names |= {
            f"layers.{name}": entry for name, entry in package.public(("layers",), frozenset())
        }
    for module in package.modules.values():
        names |= {f"ops.{name}": entry for name, entry in module.operators.items()}
    return dict(sorted(names.items()))


def listed_names(text: str) -> list[str]:
    """The names of ``__all__`` of a module in their order; empty where it is no literal list."""
    return _Module("__init__.py", text).listed or []


_Dotted: TypeAlias = tuple[str, ...]


def _module_name(path: str) -> _Dotted:
    parts = path.removesuffix(".py").split("/")
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """A name imported from a module of the package; ``name`` is None for the module itself."""

    module: _Dotted
    name: str | None


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, with those in if, try and with."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            inner = getattr(statement, name, [])
            if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler):
                yield from _flat(inner)


class _Module:
    """The names that one file binds at its top level."""

    def __init__(self, path: str, text: str) -> None:
        try:
            tree = ast.parse(text, filename=path)
        except SyntaxError as error:
            raise CheckError(
                f"{path}, line {error.lineno}: {error.msg}",
                hint="the public names cannot be read; use a Python version that has this syntax",
            ) from None
        self._here = tuple(path.split("/")[:-1])
        self.bound: dict[str, ast.stmt | _Import | None] = {}
        self.stars: list[_Dotted] = []
        self.listed: list[str] | None = None
        self.operators: dict[str, ApiEntry] = {}
        for statement in _flat(tree.body):
            self._add(statement)

    def _add(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(statement.name, statement)
                if name := _operator_name(statement):
                    parameters = _parameters(statement, typed=True)
                    returns = ast.unparse(statement.returns) if statement.returns else ""
                    self.operators[name] = ApiEntry(
                        kind="operator", parameters=parameters, returns=returns
                    )
            case ast.ClassDef():
                self._bind(statement.name, statement)
            case ast.ImportFrom():
                self._import(statement)
            case ast.Import():
                for alias in statement.names:
                    self._bind(alias.asname or alias.name.partition(".")[0], None)
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                self._assign(statement)
            case _:
                pass

    def _bind(self, name: str, value: ast.stmt | _Import | None) -> None:
        """Bind a name; a definition or import is not replaced by a fallback value."""
        is_known = isinstance(self.bound.get(name), _Function | ast.ClassDef | _Import)
        if not is_known or isinstance(value, _Function | ast.ClassDef | _Import):
            self.bound[name] = value

    def _import(self, statement: ast.ImportFrom) -> None:
        if not statement.level:
            for alias in statement.names:
                self._bind(alias.asname or alias.name, None)
            return
        above = self._here[: len(self._here) - (statement.level - 1)]
        module = (*above, *(statement.module.split(".") if statement.module else ()))
        for alias in statement.names:
            if alias.name == "*":
                self.stars.append(module)
            else:
                source = _Import(module=module, name=alias.name)
                self._bind(alias.asname or alias.name, source)

    def _assign(self, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            for node in ast.walk(target):
                if isinstance(node, ast.Name) and node.id == "__all__":
                    names = _strings(statement.value)
                    before = self.listed if isinstance(statement, ast.AugAssign) else []
                    self.listed = None if names is None or before is None else [*before, *names]
                elif isinstance(node, ast.Name):
                    self._bind(node.id, statement)


@dataclass(frozen=True, slots=True)
class _Package:
    modules: Mapping[_Dotted, _Module]

    def public(self, where: _Dotted, seen: frozenset[_Dotted]) -> Iterator[tuple[str, ApiEntry]]:
        """The public names of a module, with the names of their members."""
        for name in self._names(where, seen):
            for below, entry in self._described(where, name, seen | {where}):
                yield f"{name}{below}", entry

    def _names(self, where: _Dotted, seen: frozenset[_Dotted]) -> list[str]:
        module = self.modules.get(where)
        if module is None or where in seen:
            return []
        if module.listed is not None:
            return module.listed
        own = [
            name
            for name, value in module.bound.items()
            if value is not None and not (isinstance(value, _Import) and value.module == _GENERATED)
        ]
        stars = [n for star in module.stars for n in self._names(star, seen | {where})]
        return [name for name in (*own, *stars) if not name.startswith("_")]

    def _described(
        self, where: _Dotted, name: str, seen: frozenset[_Dotted]
    ) -> Iterator[tuple[str, ApiEntry]]:
        home, definition = self._find(where, name)
        match definition:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield "", ApiEntry(kind="function", parameters=_parameters(definition))
            case ast.ClassDef():
                yield "", ApiEntry(kind="class")
                yield from ((f".{n}", e) for n, e in self._members(home, definition, ()).items())
            case _Import(name=None) if definition.module not in seen:
                yield "", ApiEntry(kind="module")
                yield from ((f".{n}", e) for n, e in self.public(definition.module, seen))
            case _:
                yield "", ApiEntry(kind="value")

    def _find(self, where: _Dotted, name: str) -> tuple[_Dotted, ast.stmt | _Import | None]:
        """The definition of a name, through imports between modules of the package."""
        visited: set[tuple[_Dotted, str]] = set()
        while (where, name) not in visited:
            visited.add((where, name))
            module = self.modules.get(where)
            definition = None if module is None else module.bound.get(name)
            if module is not None and name not in module.bound:
                star = next((s for s in module.stars if name in self._names(s, frozenset())), None)
                if star is not None:
                    where = star
                    continue
            below = (*where, name)
            if below in self.modules and (definition is None or isinstance(definition, _Import)):
                return where, _Import(module=below, name=None)
            if not isinstance(definition, _Import) or definition.name is None:
                return where, definition
            where, name = definition.module, definition.name
        return where, None

    def _members(
        self, where: _Dotted, node: ast.ClassDef, above: tuple[str, ...]
    ) -> dict[str, ApiEntry]:
        members: dict[str, ApiEntry] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id not in above:
                home, inherited = self._find(where, base.id)
                if isinstance(inherited, ast.ClassDef):
                    members |= self._members(home, inherited, (*above, node.name, base.id))
        for statement in node.body:
            if isinstance(statement, _Function) and _is_shown(statement.name):
                members[statement.name] = _method(statement)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                names = [t.id for t in targets if isinstance(t, ast.Name) and _is_shown(t.id)]
                members |= dict.fromkeys(names, ApiEntry(kind="value"))
        return members


def _is_shown(name: str) -> bool:
    return not name.startswith("_") or name in _SHOWN_DUNDERS


def _method(node: _Function) -> ApiEntry:
    names = {_last_name(decorator) for decorator in node.decorator_list}
    if names & {"property", "cached_property"}:
        return ApiEntry(kind="value")
    parameters = _parameters(node)
    return ApiEntry(
        kind="function", parameters=parameters if "staticmethod" in names else parameters[1:]
    )


def _parameters(node: _Function, *, typed: bool = False) -> tuple[Parameter, ...]:
    arguments = node.args
    positional: list[tuple[ast.arg, Passed]] = [(a, "by position") for a in arguments.posonlyargs]
    positional += [(a, "either way") for a in arguments.args]
    missing = [None] * (len(positional) - len(arguments.defaults))
    defaults: list[ast.expr | None] = [*missing, *arguments.defaults]
    rows = [(a, passed, d) for (a, passed), d in zip(positional, defaults, strict=True)]
    if arguments.vararg:
        rows.append((arguments.vararg, "rest", None))
    rows += [
        (a, "by name", d) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    ]
    if arguments.kwarg:
        rows.append((arguments.kwarg, "other names", None))
    return tuple(
        Parameter(
            name=a.arg,
            passed=passed,
            default=None if d is None else ast.unparse(d),
            type=ast.unparse(a.annotation) if typed and a.annotation else "",
        )
        for a, passed, d in rows
    )


def _operator_name(node: _Function) -> str:
    """Name of the operator that ``@torch.library.custom_op(...)`` makes of a function, or empty."""
    for decorator in node.decorator_list:
        if isinstance(decorator, ast.Call) and _last_name(decorator.func) in _CUSTOM_OPS:
            for inner in ast.walk(decorator.args[0]) if decorator.args else ():
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    return inner.value.rpartition("::")[2]
    return ""


def _last_name(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _strings(node: ast.expr | None) -> list[str] | None:
    """The strings of a literal list or tuple; None if the value is known only at run time."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return None
    return list(value)

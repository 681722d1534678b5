# SPDX-License-Identifier: Apache-2.0
"""The public names of a kernel's package, with their signatures, read from its sources alone.

Nothing is imported: what is compared may be anybody's. Public is what ``__all__`` lists, or
without one every name without a leading underscore that the package defines or takes from a
module of its own; and the names of ``layers``, which the layer API asks for.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from kernforge.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Passed: TypeAlias = Literal["by position", "either way", "rest", "by name", "other names"]
"""How a caller may give a parameter; ``rest`` is ``*args``, ``other names`` is ``**kwargs``."""
Kind: TypeAlias = Literal["function", "class", "module", "value", "operator"]

_CUSTOM_OPS = frozenset({"custom_op", "triton_op"})
_GENERATED = ("_ops",)
"""The module that the builder writes; its names are for the package's own use."""
_SHOWN_DUNDERS = frozenset({"__init__", "__call__"})
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function or an operator.

    Attributes:
        name: empty where an operator's schema gives none.
        passed: how a caller may give it.
        default: its default as source text; None when a caller must give it.
        type: of an operator, whose types are part of its schema; empty for a function.
    """

    name: str
    passed: Passed = "either way"
    default: str | None = None
    type: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A public name.

    Attributes:
        kind: what it is.
        parameters: None where there are none to know.
        returns: of an operator.
    """

    kind: Kind
    parameters: tuple[Parameter, ...] | None = None
    returns: str = ""


def read_package(sources: Mapping[str, str]) -> dict[str, Entry]:
    """Every public name of a package, dotted, as in ``layers.SiluAndMul.forward``.

    Operators that the package defines in Python stand as ``ops.<name>``.

    Args:
        sources: text of each ``.py`` file by its path in the package, with ``/``.

    Raises:
        CheckError: a file is no Python of the running version.
    """
    package = _Package({_module_name(path): _Module.read(path, sources[path]) for path in sources})
    found = dict(package.public((), frozenset()))
    if ("layers",) in package.modules:
        found["layers"] = Entry(kind="module")
        found |= {
            f"layers.{name}": entry for name, entry in package.public(("layers",), frozenset())
        }
    for module in package.modules.values():
        found |= {f"ops.{name}": entry for name, entry in module.operators.items()}
    return dict(sorted(found.items()))


_Dotted: TypeAlias = tuple[str, ...]


def _module_name(path: str) -> _Dotted:
    parts = path.removesuffix(".py").split("/")
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Import:
    """A name that comes from a module of the package: ``name`` is None for the module itself."""

    module: _Dotted
    name: str | None


@dataclass(frozen=True, slots=True)
class _Module:
    """What one file binds at its top level."""

    bound: dict[str, ast.stmt | _Import | None] = field(default_factory=dict)
    stars: list[_Dotted] = field(default_factory=list)
    listed: list[str] | None = None
    operators: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def read(cls, path: str, text: str) -> _Module:
        try:
            tree = ast.parse(text, filename=path)
        except SyntaxError as error:
            raise CheckError(
                f"{path}, line {error.lineno}: {error.msg}",
                hint="its public names cannot be read; use a Python that knows this syntax",
            ) from None
        reader = _Reader(_module_name(path), is_package=path.endswith("__init__.py"))
        for statement in _flat(tree.body):
            reader.add(statement)
        return cls(reader.bound, reader.stars, reader.listed, reader.operators)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, those in if, try and with too."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            inner = getattr(statement, name, [])
            if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler):
                yield from _flat(inner)


class _Reader:
    """Collects what a file's statements bind."""

    def __init__(self, module: _Dotted, *, is_package: bool) -> None:
        self._here = module if is_package else module[:-1]
        self.bound: dict[str, ast.stmt | _Import | None] = {}
        self.stars: list[_Dotted] = []
        self.listed: list[str] | None = None
        self.operators: dict[str, Entry] = {}

    def add(self, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._bind(statement.name, statement)
                if name := _operator_name(statement):
                    parameters = _parameters(statement, typed=True)
                    returns = ast.unparse(statement.returns) if statement.returns else ""
                    self.operators[name] = Entry(
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

    def _bind(self, name: str, what: ast.stmt | _Import | None) -> None:
        """Bind a name; what stands in for something that cannot be imported tells less than it."""
        telling = isinstance(self.bound.get(name), _Function | ast.ClassDef | _Import)
        if not telling or isinstance(what, _Function | ast.ClassDef | _Import):
            self.bound[name] = what

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

    def public(self, where: _Dotted, seen: frozenset[_Dotted]) -> Iterator[tuple[str, Entry]]:
        """The public names of a module, and what lies below them."""
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
            for name, what in module.bound.items()
            if what is not None and not (isinstance(what, _Import) and what.module == _GENERATED)
        ]
        stars = [n for star in module.stars for n in self._names(star, seen | {where})]
        return [name for name in (*own, *stars) if not name.startswith("_")]

    def _described(
        self, where: _Dotted, name: str, seen: frozenset[_Dotted]
    ) -> Iterator[tuple[str, Entry]]:
        home, found = self._find(where, name)
        match found:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                yield "", Entry(kind="function", parameters=_parameters(found))
            case ast.ClassDef():
                yield "", Entry(kind="class")
                yield from ((f".{n}", e) for n, e in self._members(home, found, ()).items())
            case _Import(name=None) if found.module not in seen:
                yield "", Entry(kind="module")
                yield from ((f".{n}", e) for n, e in self.public(found.module, seen))
            case _:
                yield "", Entry(kind="value")

    def _find(self, where: _Dotted, name: str) -> tuple[_Dotted, ast.stmt | _Import | None]:
        """What a name stands for after every step through modules of the package."""
        visited: set[tuple[_Dotted, str]] = set()
        while (where, name) not in visited:
            visited.add((where, name))
            module = self.modules.get(where)
            found = None if module is None else module.bound.get(name)
            if module is not None and name not in module.bound:
                star = next((s for s in module.stars if name in self._names(s, frozenset())), None)
                if star is not None:
                    where = star
                    continue
            if (found is None or isinstance(found, _Import)) and (*where, name) in self.modules:
                return where, _Import(module=(*where, name), name=None)
            if not isinstance(found, _Import) or found.name is None:
                return where, found
            where, name = found.module, found.name
        return where, None

    def _members(
        self, where: _Dotted, node: ast.ClassDef, above: tuple[str, ...]
    ) -> dict[str, Entry]:
        found: dict[str, Entry] = {}
        for base in node.bases:
            if isinstance(base, ast.Name) and base.id not in above:
                home, inherited = self._find(where, base.id)
                if isinstance(inherited, ast.ClassDef):
                    found |= self._members(home, inherited, (*above, node.name, base.id))
        for statement in node.body:
            if isinstance(statement, _Function) and _is_shown(statement.name):
                found[statement.name] = _method(statement)
            elif isinstance(statement, ast.Assign | ast.AnnAssign):
                targets = (
                    statement.targets if isinstance(statement, ast.Assign) else [statement.target]
                )
                names = [t.id for t in targets if isinstance(t, ast.Name) and _is_shown(t.id)]
                found |= dict.fromkeys(names, Entry(kind="value"))
        return found


def _is_shown(name: str) -> bool:
    return not name.startswith("_") or name in _SHOWN_DUNDERS


def _method(node: _Function) -> Entry:
    names = {_last_name(decorator) for decorator in node.decorator_list}
    if names & {"property", "cached_property"}:
        return Entry(kind="value")
    parameters = _parameters(node)
    return Entry(
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
    """The operator that ``@torch.library.custom_op(...)`` makes of a function; else nothing."""
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
    """The strings of a literal list or tuple; None for what only running it would tell."""
    try:
        found = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    if not isinstance(found, list | tuple) or not all(isinstance(name, str) for name in found):
        return None
    return list(found)

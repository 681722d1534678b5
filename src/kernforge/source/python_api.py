# SPDX-License-Identifier: Apache-2.0
"""The public names of a kernel's package with their signatures, read from its sources.

No module is imported, because the source may not be trusted. A name is public if ``__all__`` lists
it or, without ``__all__``, if it has no leading underscore and the package defines it or imports it
from one of its own modules. The names of ``layers``, which the layer API loads, are public too.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeAlias

from kernforge.errors import CheckError
from kernforge.system import confined

Passed: TypeAlias = Literal["by position", "either way", "rest", "by name", "other names"]
"""How a caller may give a parameter; ``rest`` is ``*args``, ``other names`` is ``**kwargs``."""
Kind: TypeAlias = Literal["function", "class", "module", "value", "operator"]

_MOST_NAMES = 50_000
_GENERATED = ("_ops",)  # the module that the builder writes
_SHOWN = re.compile(r"\.(?:[^_]|__init__$|__call__$)")
_Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_Dotted: TypeAlias = tuple[str, ...]


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


_Entries: TypeAlias = Mapping[str, ApiEntry]
"""What a name stands for, under the empty text, and its members, as under ``.forward``."""
_VALUE: _Entries = {"": ApiEntry(kind="value")}


@dataclass(slots=True)
class _Scope:
    """The names that a module binds at its top level.

    Attributes:
        names: what each name stands for; the path of a module of the package; None for what comes
            from elsewhere.
        listed: the names of ``__all__``; None where it is no literal list.
    """

    names: dict[str, _Entries | _Dotted | None] = field(default_factory=dict)
    listed: list[str] | None = None

    @property
    def public(self) -> list[str]:
        """The public names, in order."""
        if self.listed is not None:
            return self.listed
        return [n for n, value in self.names.items() if value is not None and n[0] != "_"]


def read_package(sources: Mapping[str, str]) -> dict[str, ApiEntry]:
    """Every public name of a package with its dotted path, such as ``layers.SiluAndMul.forward``.

    Args:
        sources: text of each ``.py`` file by its path in the package, with ``/``.
    """
    package = _Package(sources)
    names = dict(package.public(()))
    if ("layers",) in package.trees:
        names["layers"] = ApiEntry(kind="module")
        names |= {f"layers.{name}": entry for name, entry in package.public(("layers",))}
    return dict(sorted(names.items()))


def read_untrusted_package(sources: Mapping[str, str]) -> dict[str, ApiEntry]:
    """As ``read_package``, in a process with limits; a CheckError if it takes too long."""
    rows = confined.call(_rows_of_package, dict(sources), "the Python of the package")
    return {
        name: ApiEntry(
            kind=row["kind"],
            parameters=row["parameters"] and tuple(Parameter(**each) for each in row["parameters"]),
            returns=row["returns"],
        )
        for name, row in rows.items()
    }


def _rows_of_package(sources: dict[str, str]) -> dict[str, dict[str, Any]]:
    return {name: asdict(entry) for name, entry in read_package(sources).items()}


def listed_names(text: str) -> list[str]:
    """The names of ``__all__`` of a module in their order; empty where it is no literal list."""
    return _Package({"__init__.py": text}).scope(()).listed or []


class _Package:
    """The modules of a package, whose statements are read in the order in which Python runs them.

    Args:
        sources: text of each file by its path.
    """

    def __init__(self, sources: Mapping[str, str]) -> None:
        self.trees = {_module_name(path): _parse(path, text) for path, text in sources.items()}
        self._is_file = {_module_name(path): not path.endswith("__init__.py") for path in sources}
        self._scopes: dict[_Dotted, _Scope] = {}
        self._names = 0

    def _count(self, names: int) -> None:
        """Refuse a package whose classes or modules repeat each other's names without an end."""
        self._names += names
        if self._names > _MOST_NAMES:
            message = f"the package has more than {_MOST_NAMES:,} public names"
            raise CheckError(message, hint="list the public ones in __all__")

    def scope(self, where: _Dotted) -> _Scope:
        """The scope of a module; in a cycle of imports, as far as it was read."""
        if where not in self._scopes:
            scope = self._scopes[where] = _Scope()
            tree = self.trees.get(where)
            for statement in _flat(tree.body if tree else ()):
                self._read(where, scope, statement)
        return self._scopes[where]

    def public(
        self, where: _Dotted, above: frozenset[_Dotted] = frozenset()
    ) -> Iterator[tuple[str, ApiEntry]]:
        """The public names of a module, with the names of their members.

        Args:
            above: modules that this one is a name of.
        """
        scope = self.scope(where)
        self._count(len(scope.public))
        for name in scope.public:
            value = scope.names.get(name) or _VALUE
            if isinstance(value, Mapping):
                yield from ((f"{name}{below}", entry) for below, entry in value.items())
            elif value in {where, *above}:
                yield name, ApiEntry(kind="value")
            else:
                yield name, ApiEntry(kind="module")
                members = self.public(value, above | {where})
                yield from ((f"{name}.{below}", entry) for below, entry in members)

    def _read(self, where: _Dotted, scope: _Scope, statement: ast.stmt) -> None:
        match statement:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                entry = ApiEntry(kind="function", parameters=_parameters(statement))
                scope.names[statement.name] = {"": entry}
            case ast.ClassDef():
                scope.names[statement.name] = members = _class(statement, scope)
                self._count(len(members))
            case ast.ImportFrom() if statement.level:
                self._import(where, scope, statement)
            case ast.Import() | ast.ImportFrom():
                for alias in statement.names:
                    scope.names.setdefault(alias.asname or alias.name.partition(".")[0])
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                _assign(scope, statement)
            case _:
                pass

    def _import(self, where: _Dotted, scope: _Scope, statement: ast.ImportFrom) -> None:
        """Bind what is imported from a module of the package."""
        above = where[: len(where) - (statement.level - 1) - self._is_file[where]]
        module = (*above, *(statement.module.split(".") if statement.module else ()))
        for alias in statement.names:
            source = self.scope(module)
            if alias.name == "*":
                scope.names |= {name: source.names.get(name, _VALUE) for name in source.public}
                continue
            below = (*module, alias.name)
            value = source.names.get(alias.name)
            if value is None:
                value = below if below in self.trees else None if module == _GENERATED else _VALUE
            scope.names[alias.asname or alias.name] = value


def _parse(path: str, text: str) -> ast.Module:
    try:
        return ast.parse(text, filename=path)
    except SyntaxError as error:
        raise CheckError(
            f"{path}, line {error.lineno}: {error.msg}",
            hint="the public names cannot be read; use a Python version that has this syntax",
        ) from None


def _module_name(path: str) -> _Dotted:
    parts = path.removesuffix(".py").split("/")
    return tuple(parts[:-1] if parts[-1] == "__init__" else parts)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that run when a module is imported, with those in if, try and with."""
    for statement in body:
        yield statement
        for name in ("body", "orelse", "finalbody", "handlers"):
            inner = getattr(statement, name, [])
            if isinstance(statement, ast.If | ast.Try | ast.With | ast.ExceptHandler):
                yield from _flat(inner)


def _assign(scope: _Scope, statement: ast.Assign | ast.AnnAssign | ast.AugAssign) -> None:
    """Bind values; a definition or an import is not replaced by a fallback value."""
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    for node in (each for target in targets for each in ast.walk(target)):
        if isinstance(node, ast.Name) and node.id == "__all__":
            names = _strings(statement.value)
            before = scope.listed if isinstance(statement, ast.AugAssign) else []
            scope.listed = None if names is None or before is None else [*before, *names]
        elif isinstance(node, ast.Name):
            scope.names.setdefault(node.id, _VALUE)


def _class(node: ast.ClassDef, scope: _Scope) -> _Entries:
    """A class with its members, and those that it inherits from classes of the package."""
    members: dict[str, ApiEntry] = {}
    for base in node.bases:
        inherited = scope.names.get(base.id) if isinstance(base, ast.Name) else None
        members |= inherited if isinstance(inherited, Mapping) else {}
    for statement in node.body:
        if isinstance(statement, _Function):
            parameters = _parameters(statement)[1:]
            entry = ApiEntry(kind="function", parameters=parameters)
            members[f".{statement.name}"] = entry
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            members |= {f".{t.id}": _VALUE[""] for t in targets if isinstance(t, ast.Name)}
    shown = {name: entry for name, entry in members.items() if _SHOWN.match(name)}
    return shown | {"": ApiEntry(kind="class")}


def _parameters(node: _Function) -> tuple[Parameter, ...]:
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
        Parameter(name=a.arg, passed=passed, default=None if d is None else ast.unparse(d))
        for a, passed, d in rows
    )


def _strings(node: ast.expr | None) -> list[str] | None:
    """The strings of a literal list or tuple; None if the value is known only at run time."""
    try:
        value = ast.literal_eval(node) if node is not None else None
    except ValueError:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        return None
    return list(value)

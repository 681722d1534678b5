# SPDX-License-Identifier: Apache-2.0
"""Program that describes, as JSON, the extensions that a setup.py or a script asks for.

``python -m kernforge.adopt.describe PROGRAM FILE TOOLKIT SANDBOXED`` in the program's directory,
with the stub of torch on the path. FILE is written; TOOLKIT is the directory that ``CUDA_HOME``
names. A setup.py is run up to its ``setup()`` call. Of a script, only what the arguments of
``load`` and ``load_inline`` need is run; outside of a sandbox nothing is, and only literals count.
"""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import setuptools

import kernforge
from kernforge.errors import UsageError
from kernforge.extension import inline
from kernforge.setuptools import extension
from kernforge.source.cpp_text import CUDA_SUFFIXES
from kernforge.system import files

_MODULES = ("torch.utils.cpp_extension", "kernforge")
_FUNCTIONS = ("load", "load_inline")


def describe_setup(path: Path, toolkit: Path) -> dict[str, object]:
    """The name, license and extensions of a setup.py, as values that JSON has."""
    from distutils import core  # noqa: PLC0415 - setuptools' own, which its import provides

    extension.NAMED_DIRECTORIES.update(torch=toolkit / "torch", cuda=toolkit)
    # Else setuptools installs what setup_requires names first.
    setuptools.setup = core.setup
    found = core.run_setup(str(path), ["build_ext"], stop_after="config")
    listed = found.ext_modules or []
    about = found.metadata
    return {
        "name": found.get_name(),
        "license": about.license or getattr(about, "license_expression", "") or "",
        "extensions": [
            dataclasses.asdict(extension.request_of(each, "", Path())) for each in listed
        ],
    }


class Script(dict[str, Any]):
    """The names of a script, each evaluated when it is used: those that one statement binds.

    Attributes:
        remarks: line and text for what only a whole run would give.
        texts: sources that the script has as text, by the path that they get.
    """

    def __init__(self, path: Path, *, sandboxed: bool) -> None:
        super().__init__(__file__=str(path), __name__="script")
        self._sandboxed = sandboxed
        self._tree = ast.parse(path.read_text(encoding="utf-8-sig"))
        self._bound: dict[str, list[ast.stmt]] = {}
        self._imported: dict[str, str] = {}
        self._line = 0
        self.remarks: list[tuple[int, str]] = []
        self.texts: dict[str, str] = {}
        # What a ``with`` binds, it binds as a whole.
        inner = {
            each for w in ast.walk(self._tree) if isinstance(w, ast.With) for each in _below(w)
        }
        for node in ast.walk(self._tree):
            if isinstance(node, ast.stmt) and node not in inner:
                for name, dotted in _bindings(node):
                    self._bound.setdefault(name, []).append(node)
                    self._imported[name] = dotted

    def __missing__(self, name: str) -> Any:
        statements = self._bound.get(name, [])
        if len(statements) != 1:
            raise KeyError(name)
        code = compile(ast.Module(statements, []), self["__file__"], "exec")
        exec(code, self)  # noqa: S102 - in a sandbox
        return self[name]

    def describe(self) -> dict[str, object]:
        """The extensions that calls of ``load`` and ``load_inline`` make."""
        calls = [node for node in ast.walk(self._tree) if isinstance(node, ast.Call)]
        found: list[dict[str, object]] = []
        for node in sorted(calls, key=lambda call: call.lineno):
            head, _, function = self._dotted(node.func).rpartition(".")
            if head in _MODULES and function in _FUNCTIONS:
                self._line = node.lineno
                found += self._extension(function, node)
        return {
            "name": "",
            "license": "",
            "extensions": found,
            "texts": self.texts,
            "remarks": self.remarks,
        }

    def _dotted(self, node: ast.expr) -> str:
        """The name that a function has outside of the script; empty if it has none."""
        if isinstance(node, ast.Name):
            return self._imported.get(node.id, "")
        return f"{self._dotted(node.value)}.{node.attr}" if isinstance(node, ast.Attribute) else ""

    def _extension(self, function: str, node: ast.Call) -> Iterator[dict[str, object]]:
        named = {each.arg: each.value for each in node.keywords if each.arg}
        bound = inspect.signature(getattr(kernforge, function)).bind_partial(*node.args, **named)
        given = {name: self._value(name, each) for name, each in bound.arguments.items()}
        name = given.get("name")
        if not isinstance(name, str):
            self.remarks.append((self._line, f"the name that {function} gets is computed"))
            return
        sources = _list(given.get("sources"))
        if function == "load_inline":
            sources = self._inline_sources(name, given)
        cuda = any(str(path).endswith(CUDA_SUFFIXES) for path in sources)
        yield {
            "name": name,
            "line": self._line,
            "with_torch": True,
            "with_cuda": cuda or given.get("with_cuda") is True,
            "sources": sources,
            "includes": _list(given.get("extra_include_paths")),
            "cflags": _list(given.get("extra_cflags")),
            "cuda_cflags": _list(given.get("extra_cuda_cflags")),
            "ldflags": _list(given.get("extra_ldflags")),
            "dlink": None,
        }

    def _inline_sources(self, name: str, given: dict[str, Any]) -> list[str]:
        cpp, cuda = (_list(given.get(kind)) for kind in ("cpp_sources", "cuda_sources"))
        try:
            made = inline.inline(cpp, cuda, given.get("functions"))
        except UsageError as error:
            self.remarks.append((self._line, error.message))
            return []
        stem = "".join(letter if letter.isalnum() else "_" for letter in name)
        paths = {unit: f"{stem}{Path(unit).suffix}" for unit in inline.UNITS if unit in made}
        self.texts |= {path: inline.joined(made, unit) for unit, path in paths.items()}
        return list(paths.values())

    def _value(self, what: str, node: ast.expr) -> Any:
        """The value of an argument without its computed parts, each of which is a remark."""
        if isinstance(node, ast.List | ast.Tuple):
            listed = [self._value(what, each) for each in node.elts]
            return [each for each in listed if each is not None]
        try:
            return self._evaluate(node)
        except Exception:  # noqa: BLE001 - an expression may raise anything
            text = f"{what}: {ast.unparse(node)} is computed and not read"
            self.remarks.append((self._line, text))
            return None

    def _evaluate(self, node: ast.expr) -> Any:
        if self._sandboxed:
            return eval(compile(ast.Expression(node), self["__file__"], "eval"), self)  # noqa: S307
        if isinstance(node, ast.Name):
            (statement,) = self._bound[node.id]
            return self._evaluate(getattr(statement, "value"))  # noqa: B009 - of some statements
        return ast.literal_eval(node)


def _below(node: ast.AST) -> Iterator[ast.AST]:
    return (each for each in ast.walk(node) if each is not node)


def _bindings(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """Names that a statement binds, and the dotted names of what an import binds them to."""
    match node:
        case ast.ImportFrom():
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}"
        case ast.Import():
            for alias in node.names:
                top = alias.name.partition(".")[0]
                yield alias.asname or top, alias.name if alias.asname else top
        case ast.FunctionDef():
            yield node.name, ""
        case ast.Assign() | ast.AnnAssign() | ast.AugAssign() | ast.For() | ast.With():
            for each in ast.walk(node):
                if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store):
                    yield each.id, ""
        case _:
            pass


def _list(value: Any) -> list[Any]:
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def main(program: str, file: str, toolkit: str, sandboxed: str) -> int:
    """Write the description of a program of this directory, or print how it failed."""
    path = Path(program)
    sys.path.insert(0, str(Path.cwd()))  # late, as it may have files of any name
    try:
        if path.name == "setup.py":
            found = describe_setup(path, Path(toolkit))
        else:
            found = Script(path.absolute(), sandboxed=sandboxed == "yes").describe()
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a setup.py may raise anything
        # setuptools runs the text of a setup.py.
        frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == "<string>"]
        line = error.lineno if isinstance(error, SyntaxError) else frames and frames[-1].lineno
        text = error.msg if isinstance(error, SyntaxError) else str(error)
        where = f"{path.name}:{line}: " if line else ""
        sys.stderr.write(f"{where}{type(error).__name__}: {text}\n")
        return 1
    files.write_atomic(Path(file), json.dumps(found, default=str))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:]))

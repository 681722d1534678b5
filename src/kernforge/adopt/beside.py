# SPDX-License-Identifier: Apache-2.0
"""Python of the old project that uses its modules: it stays there, and its lines are listed."""

from __future__ import annotations

import ast
import itertools
from typing import TYPE_CHECKING

from kernforge.adopt.modules import Program, Remark

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST = 2000  # files
_LONGEST = 1 << 20  # characters of a file
_BUILT = frozenset({"build", "dist", "node_modules", "site-packages"})


def uses(program: Program) -> tuple[Remark, ...]:
    """Where Python files of a project import the extension modules of its program, line by line.

    Args:
        program: what was read; its own file is left out.
    """
    names = {module.name for module in program.modules}
    return tuple(
        Remark(
            str(path.relative_to(program.root)),
            line,
            f"{name} is imported: take its functions from the new kernel",
            "beside",
        )
        for path in itertools.islice(_files(program.root), _MOST)
        if path != program.root / program.file
        for line, name in _imports(path, names)
    )


def _files(directory: Path) -> Iterator[Path]:
    """Python files below a directory but those that were built or installed; links are not followed."""
    for path in sorted(directory.iterdir()):
        if path.is_symlink() or path.name.startswith(".") or path.name in _BUILT:
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".py" and path.is_file() and path.stat().st_size <= _LONGEST:
            yield path


def _imports(path: Path, names: set[str]) -> Iterator[tuple[int, str]]:
    """Line and module of each import of some modules."""
    try:
        tree = ast.parse(path.read_text(encoding="utf-8-sig"))
    except (SyntaxError, ValueError, RecursionError):
        return
    lasts = {name.rpartition(".")[2]: name for name in names}
    for node in ast.walk(tree):
        found: list[str] = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            found = [module, *(f"{module}.{alias.name}" for alias in node.names)]
            if node.level:  # from . import _C, from ._C import f
                found = [lasts.get(each.rpartition(".")[2], "") for each in found]
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = ast.unparse(node.func)
            found = [str(node.args[0].value)] if called.endswith("import_module") else []
        line = getattr(node, "lineno", 0)
        yield from ((line, name) for name in dict.fromkeys(found) if name in names)

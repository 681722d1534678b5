# SPDX-License-Identifier: Apache-2.0
"""Python of the old project that uses its modules: it stays there, and its lines are listed."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from kernforge.adopt import scripts
from kernforge.adopt.program import Program, Remark
from kernforge.project.api import is_skipped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_MOST = 2000  # files
_LONGEST = 1 << 20  # characters of a file
_BUILT = frozenset({"build", "dist"})


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
        for line, name in scripts.imports(path, names)
    )


def _files(directory: Path) -> Iterator[Path]:
    """Python files below a directory but those that were built or installed; links are not followed."""
    for path in sorted(directory.iterdir()):
        if path.is_symlink() or path.name in _BUILT or is_skipped(path):
            continue
        if path.is_dir():
            yield from _files(path)
        elif path.suffix == ".py" and path.is_file() and path.stat().st_size <= _LONGEST:
            yield path

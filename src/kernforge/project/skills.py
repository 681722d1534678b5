# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: the pages that a coding assistant reads to work with kernforge.

A skill is a directory with a ``SKILL.md``, which has a name and a description, and pages that it
refers to (https://agentskills.io/specification). Ours is ``templates/skills/kernforge``; its
references are the documentation, which ``scripts/hatch_build.py`` puts into a wheel. A checkout
that is installed in place has it in ``docs/`` and ``kernels/``.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project.scaffold import render
from kernforge.system.files import remove_tree, write_atomic

NAME = "kernforge"
"""The skill's name and directory."""
OPEN = "agents"
MARK = ".kernforge.json"
"""The file in the skill that has the SHA-256 of each file that kernforge wrote."""

_CHECKOUT = Path(__file__).parents[3]
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class SkillPlace:
    """Where an assistant looks for skills.

    Attributes:
        project: below the project.
        user: below the home directory, for all projects.
    """

    project: str
    user: str
    readers: str


PLACES = {
    OPEN: SkillPlace(".agents/skills", ".agents/skills", "Codex, OpenCode and others"),
    "claude": SkillPlace(".claude/skills", ".claude/skills", "Claude Code and OpenCode"),
    "opencode": SkillPlace(".opencode/skills", ".config/opencode/skills", "OpenCode"),
}
"""Name on the command line to place."""


def texts() -> dict[str, str]:
    """The files of the skill, by path below its directory."""
    files = render((f"skills/{NAME}",), words={})
    if not any(path.startswith("references/") for path in files):
        for pattern in ("docs/**/*.md", "kernels/*/README.md"):
            for page in sorted(_CHECKOUT.glob(pattern)):
                path = f"references/{page.relative_to(_CHECKOUT).as_posix()}"
                files[path] = page.read_text(encoding="utf-8")
    return {path: _within(path, text, files.keys()) for path, text in files.items()}


def _within(path: str, text: str, files: AbstractSet[str]) -> str:
    """A page without comments for our tests, and without links to files that the skill lacks."""

    def link(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        here = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return match[0] if "://" in target or not target or here in files else match[1]

    return _LINK.sub(link, _COMMENT.sub("", text))


def directories(root: Path, wanted: tuple[str, ...], *, user: bool) -> tuple[Path, ...]:
    """The directories that skills belong to.

    Args:
        root: the project, or the home directory.
        wanted: some of ``PLACES``; none: those whose first directory is there, else ``OPEN``.
        user: the places for all projects of the user.
    """
    paths = {name: root / (p.user if user else p.project) for name, p in PLACES.items()}
    chosen = wanted or tuple(name for name, path in paths.items() if path.parent.is_dir())
    return tuple(paths[name] for name in chosen or (OPEN,))


def write(directory: Path) -> Path:
    """Write the skill into a directory of skills, in place of an earlier version of it.

    Files that kernforge did not write stay as they are.

    Returns:
        The skill's directory.

    Raises:
        UsageError: a file that is not as kernforge wrote it would be replaced, or a link followed.
        StorageError: it cannot be written.
    """
    target = directory / NAME
    real = directory.resolve() / NAME
    new = texts()
    written = _written(target / MARK)
    for path in sorted({*new, *written, MARK}):
        if (target / path).resolve() != real / path or not (real / path).is_relative_to(real):
            raise UsageError(
                f"{target / path} is reached through a link",
                hint="remove the link",
            )
    changed = [
        path
        for path, text in new.items()
        if _digest(target / path) not in (None, written.get(path), _sha256(text))
    ]
    if changed:
        raise UsageError(
            f"{target / min(changed)} exists, and is not as kernforge wrote it",
            hint="remove it, and the new one is written",
        )
    for path in written.keys() - new.keys():
        if _digest(target / path) == written[path]:
            remove_tree(target / path)
    for path, text in new.items():
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomic(target / path, text, durable=False)
    write_atomic(target / MARK, json.dumps({p: _sha256(text) for p, text in new.items()}, indent=1))
    return target


def _written(mark: Path) -> dict[str, str]:
    """The files that kernforge wrote beside a mark, each with its SHA-256 of then."""
    try:
        files = json.loads(mark.read_bytes())
    except (OSError, ValueError):
        return {}
    return files if isinstance(files, dict) else {}


def _digest(path: Path) -> str | None:
    """The SHA-256 of a file; of none where there is nothing, of no file's where it is none."""
    if not path.exists():
        return None
    return _sha256(path.read_bytes()) if path.is_file() else ""


def _sha256(data: str | bytes) -> str:
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()

# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: the pages that a coding assistant reads to work with kernforge.

A skill is a directory with a ``SKILL.md``, which has a name and a description, and pages that it
refers to (https://agentskills.io/specification). Ours is ``templates/skills/kernforge``; its
references are made from the documentation by ``scripts/docs_skills.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project.scaffold import render
from kernforge.system.files import replace_tree, staging, write_new

NAME = "kernforge"
"""The skill's name and directory."""
OPEN = "agents"


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
    return render((f"skills/{NAME}",), words={})


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


def write(directory: Path, *, force: bool = False) -> Path:
    """Write the skill into a directory of skills, in place of an earlier version of it.

    Args:
        force: replace what is there also if it is not this skill.

    Returns:
        The skill's directory.

    Raises:
        UsageError: something else has its name.
        StorageError: it cannot be written.
    """
    target = directory / NAME
    if not force and target.exists() and not _is_ours(target / "SKILL.md"):
        raise UsageError(
            f"{target} exists, and is not a skill that kernforge wrote",
            hint="--force replaces it; --dest DIR writes to another directory",
        )
    with staging(directory.absolute()) as stage:
        for path, text in texts().items():
            write_new(stage / NAME / path, text)
        replace_tree(stage / NAME, target)
    return target


def _is_ours(page: Path) -> bool:
    """Whether a file is the first page of this skill, of any version."""
    try:
        head = page.read_text(encoding="utf-8", errors="replace")[:200]
    except OSError:
        return False
    return re.match(rf"---\nname: {NAME}\n", head) is not None

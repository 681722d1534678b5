# SPDX-License-Identifier: Apache-2.0
"""``kernforge skills``: pages on kernforge for a coding assistant.

A skill is a directory with a ``SKILL.md``, which has a name and a description, and pages that it
refers to (https://agentskills.io/specification). Ours is ``templates/skills/kernforge``; its
references are the documentation, which ``scripts/hatch_build.py`` puts into a wheel. A checkout
that is installed in place has it in ``docs/`` and ``kernels/``.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Set as AbstractSet
from pathlib import Path

from kernforge.errors import UsageError
from kernforge.project.scaffold import render
from kernforge.system import digest, files

NAME = "kernforge"
"""The skill's name and directory."""
OPEN = "agents"
MARK = ".kernforge"
"""The file in the skill that has the digest of all files that kernforge wrote."""

_CHECKOUT = Path(__file__).parents[3]
_COMMENT = re.compile(r"^<!-- .*? -->\n", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]+)\)", re.DOTALL)


PLACES = {
    OPEN: (".agents/skills", ".agents/skills"),
    "claude": (".claude/skills", ".claude/skills"),
    "opencode": (".opencode/skills", ".config/opencode/skills"),
}
"""Directory below a project, and below the home directory, by name on the command line."""


def texts() -> dict[str, str]:
    """The files of the skill, by path below its directory."""
    pages = render((f"skills/{NAME}",), words={})
    if not any(path.startswith("references/") for path in pages):
        for pattern in ("docs/**/*.md", "kernels/*/README.md"):
            for page in sorted(_CHECKOUT.glob(pattern)):
                path = f"references/{page.relative_to(_CHECKOUT).as_posix()}"
                pages[path] = page.read_text(encoding="utf-8")
    return {path: _within(path, text, pages.keys()) for path, text in pages.items()}


def _within(path: str, text: str, pages: AbstractSet[str]) -> str:
    """Remove comments for tests, and links to files outside of the skill."""

    def link(match: re.Match[str]) -> str:
        target = match[2].partition("#")[0]
        here = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
        return match[0] if "://" in target or not target or here in pages else match[1]

    return _LINK.sub(link, _COMMENT.sub("", text))


def directories(root: Path, wanted: tuple[str, ...], *, user: bool) -> tuple[Path, ...]:
    """Directories of skills.

    Args:
        root: the project, or the home directory.
        wanted: some of ``PLACES``; none: those whose first directory is there, else ``OPEN``.

    Raises:
        UsageError: a link leads out of ``root``.
    """
    paths = {name: root / places[user] for name, places in PLACES.items()}
    chosen = wanted or tuple(name for name, path in paths.items() if path.parent.is_dir())
    places = tuple(paths[name] for name in chosen or (OPEN,))
    for place in places:
        if not place.resolve().is_relative_to(root.resolve()):
            raise UsageError(
                f"{place} leads by a link to {place.resolve()}, outside of {root.resolve()}",
                hint="write it there: run this command in that directory, or with --global",
            )
    return places


def write(directory: Path) -> Path:
    """Write the skill in a directory of skills, in the place of an unchanged earlier one.

    Returns:
        The skill's directory.
    """
    target, new = directory / NAME, {path: text.encode() for path, text in texts().items()}
    mark = target / MARK
    there = {
        path.relative_to(target).as_posix(): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file() and path != mark
    }
    linked = any(path.is_symlink() for path in (target, *target.rglob("*")))
    if linked or (there and not (mark.is_file() and mark.read_text() == _digest(there))):
        raise UsageError(
            f"{target} was modified, or is not from kernforge",
            hint="remove it, and the new one is written",
        )
    with files.staging(directory) as staged:
        for path, data in {**new, MARK: _digest(new).encode()}.items():
            files.write_new(staged / NAME / path, data)
        files.replace_tree(staged / NAME, target)
    return target


def _digest(contents: Mapping[str, bytes]) -> str:
    return digest.key("skill", files={path: digest.sha256(d) for path, d in contents.items()})

# SPDX-License-Identifier: Apache-2.0
"""Build hook of the wheel: the documentation goes into the skill that ``kernforge skills`` writes.

A checkout that is installed in place has no copy: ``kernforge.project.skills`` reads it there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SKILL = "kernforge/templates/skills/kernforge/references"


class SkillPages(BuildHookInterface):
    """Adds the pages to the files of a wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the pages, before the wheel is written."""
        root = Path(self.root)
        if version == "standard":
            for pattern in ("docs/**/*.md", "kernels/*/README.md"):
                for page in sorted(root.glob(pattern)):
                    where = f"{SKILL}/{page.relative_to(root).as_posix()}"
                    build_data["force_include"][str(page)] = where

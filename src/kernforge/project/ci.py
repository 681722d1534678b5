# SPDX-License-Identifier: Apache-2.0
"""Files with which a forge builds, tests and publishes a project: workflows, an image, a container.

They are the folders of ``templates/ci``: ``common`` for every forge, and one for each forge.
Between ``# <cpu>`` and ``# </cpu>`` lies what only a project with that backend has.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal

from kernforge.project import scaffold

Forge = Literal["github", "gitlab"]
"""Who runs the jobs."""
FORGES: tuple[Forge, ...] = ("github", "gitlab")

_PART = re.compile(r"^# <(\w+)>\n(.*?)^# </\1>\n", re.DOTALL | re.MULTILINE)
_PATTERNS = {"cpu": "*-cpu-*", "cuda": "*-cu1*"}


def ci_files(forge: Forge, name: str, backends: Collection[str]) -> dict[str, str]:
    """The files by their paths in the project.

    Args:
        backends: of the project; those other than ``cpu`` and ``cuda`` have no jobs of their own.
    """
    built = [backend for backend in _PATTERNS if backend in backends]
    rows = {backend: _PATTERNS[backend] for backend in built} or {"all": "*"}
    tests = [job for job, part in (("test-cpu", "cpu"), ("test-gpu", "cuda")) if part in built]
    words = {
        "__HUB_NAME__": name,
        "__GITHUB_MATRIX__": _rows(rows, "          - {{backend: {}, variants: '{}'}}"),
        "__GITLAB_MATRIX__": _rows(rows, "      - {{BACKEND: {}, VARIANTS: '{}'}}"),
        "__NEEDS__": ", ".join(["build", *tests]),
    }
    files = scaffold.render(("ci/common", f"ci/{forge}"), words=words)
    return {path: _PART.sub(lambda m: _part(m, built), text) for path, text in files.items()}


def _part(match: re.Match[str], backends: Collection[str]) -> str:
    return match[2] if match[1] in backends else ""


def _rows(rows: dict[str, str], form: str) -> str:
    return "\n".join(form.format(backend, pattern) for backend, pattern in rows.items())

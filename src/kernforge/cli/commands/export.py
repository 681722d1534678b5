# SPDX-License-Identifier: Apache-2.0
"""``kernforge export``: a project's files for other build tools and editors."""

from __future__ import annotations

import argparse

from kernforge.cli import options
from kernforge.export import api as export
from kernforge.manifest.model import TorchNoarch
from kernforge.project import targets
from kernforge.project.api import read_project
from kernforge.system.console import Console

_KEPT = "an export here did not write it, or it was changed since (--force replaces it)"


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Write the files; those of the user are kept without ``--force``."""
    kinds = arguments.only or export.KINDS
    project = read_project(arguments.project)
    to = arguments.to or project.root
    texts = export.texts(project, kinds)
    noarch = isinstance(project.manifest.framework, TorchNoarch)
    with_editor = "editor" in kinds and (bool(arguments.only) or not noarch)
    for note in project.manifest.notes:
        console.note(f"note: {note}")
    if with_editor:
        workspace = options.workspace(arguments, console)
        chosen = targets.choose(workspace.candidates, [])
        texts |= export.compile_commands(workspace, chosen, to)
    user_files = export.write(project, texts, to, arguments.environment.home, force=arguments.force)
    written = [str(to / path) for path in sorted(texts.keys() - user_files)]
    kept = [str(to / path) for path in sorted(user_files)]
    lines = [*written, *(f"kept {path}: {_KEPT}" for path in kept)]
    document = {"directory": str(to), "files": written, "kept": kept}
    console.result(document, "\n".join(lines))

# SPDX-License-Identifier: Apache-2.0
"""``kernforge adopt``: a kernel project of a setup.py, of a script or of an old build.toml."""

from __future__ import annotations

import argparse
import dataclasses

from kernforge.adopt import api as adopt
from kernforge.manifest import migrate
from kernforge.project.api import MANIFEST
from kernforge.system.console import Console
from kernforge.system.tables import counted

_TITLES = {
    "changed": "translated otherwise:",
    "check": "assumed, look at it:",
    "left": "not translated, yours to do:",
}


def run(arguments: argparse.Namespace, console: Console) -> None:
    """Adopt a project, or convert its build.toml to the current edition."""
    manifest = arguments.source / MANIFEST
    if manifest.is_file():
        migrate.migrate_file(manifest, license_name=arguments.license or "")
        console.result({"file": str(manifest)}, f"{manifest}: edition 5 or newer")
        return
    adopted = adopt.adopt(
        arguments.source,
        dest=arguments.out,
        name=arguments.name or "",
        license=arguments.license or "",
    )
    operators = adopted.operators
    files = counted(len(adopted.files), "file")
    lines = [f"{adopted.dest}: {files}, {counted(len(operators), 'operator')}"]
    lines += [f"  {name}: {schema}" for name, schema in operators.items()]
    for kind, title in _TITLES.items():
        remarks = [f"  {remark}" for remark in adopted.remarks if remark.kind == kind]
        lines += [title, *remarks] if remarks else []
    lines.append(f"next: kernforge build {adopted.dest}")
    console.result(
        {
            "project": str(adopted.dest),
            "files": [str(path) for path in adopted.files],
            "operators": dict(operators),
            "remarks": [dataclasses.asdict(remark) for remark in adopted.remarks],
        },
        "\n".join(lines),
    )

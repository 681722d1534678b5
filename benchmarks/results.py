# SPDX-License-Identifier: Apache-2.0
"""A document of results: where and when it was measured, and one table with a row a line."""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import kernforge
from kernforge.system import machine

RESULTS = Path(__file__).parent / "results"


def describe(*packages: str) -> dict[str, Any]:
    """Machine, versions and date.

    Args:
        packages: distributions whose versions matter to the result.
    """
    return {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "cpu": machine.processor_name(),
        "cores": machine.cores(),
        "system": platform.freedesktop_os_release().get("PRETTY_NAME", platform.system()),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in packages},
    }


def _version(name: str) -> str:
    # From a checkout, kernforge is on the path without being installed.
    return kernforge.__version__ if name == "kernforge" else importlib.metadata.version(name)


def write(
    path: Path,
    where: Mapping[str, Any],
    *,
    title: str,
    head: Sequence[str],
    rows: Sequence[Sequence[str]],
    note: str,
) -> None:
    """Write the document, and print its table."""
    lines = ",\n".join(f"   {json.dumps(list(row), ensure_ascii=False)}" for row in rows)
    texts = {
        name: json.dumps(v, ensure_ascii=False)
        for name, v in (("machine", where), ("title", title), ("head", list(head)), ("note", note))
    }
    path.write_text(
        f'{{\n "machine": {texts["machine"]},\n "table": {{\n  "title": {texts["title"]},\n'
        f'  "head": {texts["head"]},\n  "rows": [\n{lines}\n  ],\n'
        f'  "note": {texts["note"]}\n }}\n}}\n'
    )
    print("\n".join(" | ".join(map(str, row)) for row in (head, *rows)), flush=True)

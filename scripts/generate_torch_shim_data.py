# SPDX-License-Identifier: Apache-2.0

"""Write ``src/kernforge/data/torch-shim.txt``: the torch that brought each stable C function.

    python scripts/generate_torch_shim_data.py --include DIR

DIR is the ``include`` folder of the newest torch. Its C shim headers guard what is newer than 2.9
with ``#if TORCH_FEATURE_VERSION >= TORCH_VERSION_2_NN_0``; what has no guard is older.
"""

from __future__ import annotations

import argparse
import re
from pathlib import Path

TARGET = Path(__file__).parents[1] / "src" / "kernforge" / "data" / "torch-shim.txt"
FOLDERS = ("torch/csrc/stable/c", "torch/csrc/inductor/aoti_torch")
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Functions of torch's stable C interface, and the first torch that has them; others are in 2.9.
# Written by scripts/generate_torch_shim_data.py from the headers' guards; do not edit.
"""
_GUARD = re.compile(r"#\s*if\s+TORCH_FEATURE_VERSION\s*>=\s*TORCH_VERSION_(\d+)_(\d+)_\d+")
_FUNCTION = re.compile(r"\b((?:aoti_)?torch_\w+)\s*\(")


def guarded(text: str) -> dict[str, tuple[int, int]]:
    """Functions that a header declares behind a version guard."""
    found: dict[str, tuple[int, int]] = {}
    guards: list[tuple[int, int] | None] = []
    for line in text.splitlines():
        if match := _GUARD.match(line):
            guards.append((int(match[1]), int(match[2])))
        elif re.match(r"#\s*if", line):
            guards.append(None)
        elif re.match(r"#\s*endif", line):
            guards.pop()
        elif versions := [guard for guard in guards if guard]:
            code = line.partition("//")[0]
            found |= {name: max(versions) for name in _FUNCTION.findall(code)}
    return found


def main() -> None:
    """Read the headers and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--include", type=Path, required=True)
    include = parser.parse_args().include
    found: dict[str, tuple[int, int]] = {}
    for folder in FOLDERS:
        for header in sorted((include / folder).rglob("*.h")):
            for name, version in guarded(header.read_text()).items():
                found[name] = min(version, found.get(name, version))
    lines = [f"{name} {major}.{minor}\n" for name, (major, minor) in sorted(found.items())]
    TARGET.write_text(HEADER + "".join(lines))


if __name__ == "__main__":
    main()

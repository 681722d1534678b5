# SPDX-License-Identifier: Apache-2.0
"""Print the size of each package beside its budget, and fail above a limit: ``make lint``.

A limit is a total, or 110 % of a package's budget. Counted are the lines of the files that git
tracks, docstrings and blank lines included. The budgets stand in ``pyproject.toml``,
``[tool.kernforge-sizes]``.
"""

from __future__ import annotations

import collections
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def tracked(*patterns: str) -> list[Path]:
    """The tracked files that match, but for the templates of projects."""
    argv = ["git", "ls-files", "--", *patterns]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    paths = [ROOT / line for line in listed.stdout.splitlines() if "/templates/" not in line]
    return [path for path in paths if path.is_file()]


def lines(paths: list[Path]) -> int:
    """How many lines these files have together."""
    return sum(path.read_bytes().count(b"\n") for path in paths)


def package_rows(budgets: dict[str, int]) -> list[tuple[str, int, int, int]]:
    """Name, modules, lines and budget of each package, in the order of the budgets."""
    packages: dict[str, list[Path]] = collections.defaultdict(list)
    for path in tracked("src/kernforge/*.py"):
        folder = path.relative_to(ROOT / "src/kernforge").parts[0]
        packages["(top)" if folder.endswith(".py") else folder].append(path)
    names = [*budgets, *sorted(set(packages) - set(budgets))]
    return [
        (name, len(packages[name]), lines(packages[name]), budgets.get(name, 0))
        for name in names
        if packages[name]
    ]


def main() -> None:
    """Print the tables; end with status 1 above a limit."""
    tool = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["kernforge-sizes"]
    above = False
    print(f"{'package':16}{'modules':>8}{'lines':>8}{'budget':>8}")
    for name, modules, count, budget in package_rows(tool["packages"]):
        above |= count > 1.1 * budget
        mark = "  over 110 %" if count > 1.1 * budget else ""
        print(f"{name:16}{modules:>8}{count:>8,}{budget or '-':>8}{mark}")
    print(f"\n{'total':32}{'lines':>8}{'limit':>8}")
    for name, limit in tool["totals"].items():
        count = lines(tracked(*limit["files"]))
        above |= count > limit["lines"]
        mark = "  above the limit" if count > limit["lines"] else ""
        print(f"{name:32}{count:>8,}{limit['lines']:>8,}{mark}")
    sys.exit(above)


if __name__ == "__main__":
    main()

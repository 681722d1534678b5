# SPDX-License-Identifier: Apache-2.0
"""Write the generated reference pages and README's tables: ``make docs``.

A test runs this with ``--check`` and fails when a page is not what the code says.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from kernforge import errors
from kernforge.cli import main as cli_main
from kernforge.manifest import schema

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
START, END = "<!-- results:start -->", "<!-- results:end -->"


def cli_page() -> str:
    """Every command's help."""
    parser = cli_main.parser()
    parts = ["# Commands\n", *_help(parser.prog, parser)]
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001
    for name, verb in actions[0].choices.items():
        parts += _help(f"kernforge {name}", verb)
    return "\n".join(parts)


def _help(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"## {title}\n", "```text", parser.format_help().rstrip(), "```\n")


def _with_subclasses(kind: type[errors.KernforgeError]) -> Iterator[type[errors.KernforgeError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _with_subclasses(below)


_JSON = """With `--json` a command prints one document, however it ends: `error` (the class), `message` and `hint` stand in it beside what there is of
the result. A result that is a list, as of `check`, is printed alone; the error is on standard error, as ever.
"""


def errors_page() -> str:
    """Every error with its exit code."""
    kinds = list(_with_subclasses(errors.KernforgeError))
    rows = [
        f"| {kind.exit_code} | `{kind.__name__}` | {(kind.__doc__ or '').splitlines()[0]} |"
        for kind in kinds
    ]
    return "\n".join(
        (
            "# Errors and exit codes\n",
            "Python code meets the class, a shell the exit code; 0 is success, 130 an interrupt.\n",
            _JSON,
            "| exit code | error | what happened |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


def results() -> str:
    """README's tables, from the stored results."""
    parts = []
    for path in sorted(ROOT.glob("benchmarks/results/*.json")) + sorted(
        ROOT.glob("kernels/*/benchmarks/results/*.json")
    ):
        document = json.loads(path.read_text())
        if "table" in document:
            parts.append(_table(document["table"], path))
    return "\n".join(parts)


def _table(table: dict[str, object], path: Path) -> str:
    """One table; a result file carries its own title, head, rows and note."""
    head, rows = table["head"], table["rows"]
    lines = [f"**{table['title']}** ([{path.name}]({path.relative_to(ROOT)}))\n"]
    lines += [_row(head), _row(["---"] * len(head)), *map(_row, rows)]
    return "\n".join([*lines, "", f"{table['note']}\n"])


def _row(cells: list[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    readme = (ROOT / "README.md").read_text()
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    return {
        REFERENCE / "manifest.md": schema.reference_markdown(),
        REFERENCE / "commands.md": cli_page(),
        REFERENCE / "errors.md": errors_page(),
        REFERENCE / "build.schema.json": json.dumps(schema.json_schema(), indent=2) + "\n",
        ROOT / "README.md": f"{before}{START}\n{results()}{END}{after}",
    }


def main() -> None:
    """Write the pages, or with ``--check`` say which are out of date."""
    stale = [
        path for path, text in pages().items() if not path.exists() or path.read_text() != text
    ]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `make docs`")
        sys.exit(1 if stale else 0)
    for path in stale:
        path.write_text(pages()[path])
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

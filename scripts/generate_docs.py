# SPDX-License-Identifier: Apache-2.0
"""Write the generated pages of the documentation and README's table: ``make docs``.

A test runs this with ``--check`` and fails if a page is not what the code says.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import docs_api
import docs_results
import docs_skills

from kernforge import errors
from kernforge.cli import main as cli_main
from kernforge.cli.table import COMMANDS
from kernforge.manifest import schema
from kernforge.system.environment import Environment, Variable

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
API = (
    "kernforge.compat",
    *("kernforge", "kernforge.errors", "kernforge.registry", "kernforge.setuptools"),
    "kernforge.testing",
)
START, END = "<!-- results:start -->", "<!-- results:end -->"


def cli_page() -> str:
    """Every command's help."""
    parser = cli_main.parser()
    parts = ["# Commands\n", *_help(parser.prog, parser)]
    actions = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]  # noqa: SLF001
    for command in COMMANDS:
        verb = actions[0].choices[command.name]
        parts += _help(f"kernforge {command.name}", verb)
        for nested in verb._actions:  # noqa: SLF001 - as above
            if isinstance(nested, argparse._SubParsersAction):  # noqa: SLF001
                for name, action in nested.choices.items():
                    parts += _help(f"kernforge {command.name} {name}", action)
    return "\n".join(parts)


def _help(title: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield from (f"## {title}\n", "```text", parser.format_help().rstrip(), "```\n")


def _with_subclasses(kind: type[errors.KernforgeError]) -> Iterator[type[errors.KernforgeError]]:
    yield kind
    for below in kind.__subclasses__():
        if below.__module__ == errors.__name__:
            yield from _with_subclasses(below)


_ERRORS = """# Errors and exit codes

Every error is a class of `kernforge.errors` with a `message` and a `hint`. A command prints both
and ends with the exit code of the class. 0 is success, 130 an interrupt by Ctrl-C.

With `--json` a command prints one document, also if it fails: `error` (the class), `message` and
`hint` are keys of the document, together with the part of the result that exists. If the result is
a list, as of `check`, the list is the whole document and the error is printed on standard error.
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
            _ERRORS,
            "| exit code | error | what happened |",
            "|---|---|---|",
            *rows,
            "",
        )
    )


_ENVIRONMENT = """# Environment variables

Some replace the default of an option: [commands](commands.md) says which. pip's variables and
`.netrc` apply to the package index.

| variable | meaning |
|---|---|"""


def environment_page() -> str:
    """Every variable with its meaning."""
    found = [v for v in vars(Environment).values() if isinstance(v, Variable)]
    return "\n".join((_ENVIRONMENT, *(f"| `{v.name}` | {v.meaning} |" for v in found), ""))


def decisions_page() -> str:
    """The index of the decisions."""
    rows = []
    for path in sorted((DOCS / "decisions").glob("[0-9]*.md")):
        text = path.read_text()
        title = re.search(r"^# (\d+)\. (.+)$", text, re.MULTILINE)
        status = re.search(r"^Status: (.+)$", text, re.MULTILINE)
        if not title or not status or title[1] != str(int(path.name[:4])):
            raise SystemExit(
                f"{path.name} must start with '# NUMBER. TITLE' and have 'Status: ...'"
            )
        rows.append(f"| {title[1]} | [{title[2]}]({path.name}) | {status[1]} |")
    return "\n".join((_DECISIONS, "| number | decision | status |", "|---|---|---|", *rows, ""))


_DECISIONS = """# Decisions

One page for each decision: context, decision, consequences. A new decision gets a new page; the
status of the old page names it.
"""


def pages() -> dict[Path, str]:
    """Every generated file with its text."""
    readme = (ROOT / "README.md").read_text()
    before, _, rest = readme.partition(START)
    _, _, after = rest.partition(END)
    results = ROOT / "benchmarks" / "results"
    return {
        **{DOCS / "results" / f"{n}.md": text for n, text in docs_results.pages(results).items()},
        **{REFERENCE / "api" / f"{name}.md": docs_api.api_page(name) for name in API},
        REFERENCE / "packages.md": docs_api.packages_page(ROOT / "src" / "kernforge"),
        DOCS / "decisions" / "README.md": decisions_page(),
        REFERENCE / "manifest.md": schema.reference_markdown(),
        REFERENCE / "commands.md": cli_page(),
        REFERENCE / "errors.md": errors_page(),
        REFERENCE / "environment.md": environment_page(),
        REFERENCE / "build.schema.json": json.dumps(schema.json_schema(), indent=2) + "\n",
        **docs_skills.pages(sorted(ROOT.glob("kernels/*/README.md"))),
        ROOT / "README.md": f"{before}{START}\n{docs_results.headlines(results)}{END}{after}",
    }


def main() -> None:
    """Write the pages, or with ``--check`` say which are out of date."""
    texts = pages()
    stale = [path for path, text in texts.items() if not path.exists() or path.read_text() != text]
    if "--check" in sys.argv[1:]:
        for path in stale:
            print(f"{path.relative_to(ROOT)} is out of date: run `make docs`")
        sys.exit(1 if stale else 0)
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(texts[path])
        print(path.relative_to(ROOT))


if __name__ == "__main__":
    main()

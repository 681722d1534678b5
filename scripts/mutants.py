# SPDX-License-Identifier: Apache-2.0
"""Put small faults into a package, one at a time, and list those that its unit tests miss.

    python scripts/mutants.py trust [--tests tests/unit/trust]

mutmut makes the faults in a copy of the checkout below ``.mutants`` and runs, for each, the tests
that call the changed function. Faults that the type checker sees are not run. It leaves out what
stands outside functions, and decorated functions. A fault in the words of an error or of a log
line is counted apart: no test holds those, and a reader judges them.
"""

from __future__ import annotations

import argparse
import ast
import collections
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from kernforge.system import files

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = """
[tool.mutmut]
source_paths = ["src/"]
only_mutate = ["src/kernforge/{package}/*"]
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["--disable-plugin-autoload", "-p", "no:cacheprovider"]
also_copy = {tops}
process_isolation = "forkserver"
type_check_command = [
  "mypy", "--config-file", "mutants.ini", "--output", "json", "src/kernforge/{package}",
]
"""
# Only errors of the package itself, and without comments that mutmut writes.
TYPES = """
[mypy]
ignore_missing_imports = True
follow_imports = silent
[mypy-torch.*]
follow_imports = skip
"""
# By mutmut's exit code of a mutant; any other code means that a test noticed.
_OUTCOMES = {0: "survived", 5: "no test", 33: "no test", 34: "", 37: "types", None: ""}
_UNSEEN = {"survived", "no test"}
_SPEAKS = ("warning", "info", "debug", "error")
_AROUND = 40


class Mutant(NamedTuple):
    """A fault and what became of it.

    Attributes:
        outcome: "killed", "survived", "no test", "types" or "words".
        where: the file and the line.
        change: the changed lines, those removed with - and those added with +.
    """

    outcome: str
    where: str
    change: str


class _Wordless(ast.NodeTransformer):
    """Takes the words out of errors and log lines."""

    def visit_Call(self, node: ast.Call) -> ast.AST:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        name = node.func.id if isinstance(node.func, ast.Name) else name
        if name.endswith(("Error", "Mistake", "_wrong", "getLogger")) or name in _SPEAKS:
            return ast.Call(func=node.func, args=[], keywords=[])
        node.keywords = [each for each in node.keywords if each.arg != "hint"]
        return self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(exc=raised, cause=None)


def wordless(function: ast.AST) -> str:
    """What a function does, without its name and the words of its errors."""
    copy = ast.parse(ast.unparse(function)).body[0]
    copy.name = ""  # type: ignore[attr-defined] - it is a function
    return ast.dump(_Wordless().visit(copy))


def shortened(before: str, after: str) -> str:
    """The words in which two functions differ, with some of what stands around them."""
    old, new = (text.partition("(")[2] for text in (before, after))
    pairs = zip(old, new, strict=False)
    start = next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(old), len(new)))
    same = 0
    while same < min(len(old), len(new)) - start and old[-1 - same] == new[-1 - same]:
        same += 1
    left = max(old.rfind("\n", 0, start) + 1, start - _AROUND)
    old, new = (text[left : len(text) - same + _AROUND].partition("\n")[0] for text in (old, new))
    return f"  - {old.strip()}\n  + {new.strip()}"


def first_line(source: str, owner: str | None, name: str) -> int:
    """The line of a function in the unchanged file."""
    start = source.find(f"class {owner}") if owner else 0
    return source.count("\n", 0, source.find(f"def {name}(", start)) + 1


def read(path: Path, original: Path) -> Iterator[Mutant]:
    """The mutants of one file, from what mutmut wrote."""
    meta = Path(f"{path}.meta")
    codes = json.loads(meta.read_text())["exit_code_by_key"] if meta.is_file() else {}
    kinds = ast.FunctionDef | ast.AsyncFunctionDef
    nodes = ast.walk(ast.parse(path.read_text()))
    there = {node.name: node for node in nodes if isinstance(node, kinds)}
    source = original.read_text()
    for key, code in codes.items():
        outcome = _OUTCOMES.get(code, "killed")
        # module.x_name__mutmut_3, and module.xǁClassǁname__mutmut_3
        mangled = key.rpartition(".")[2]
        base = mangled.rpartition("__mutmut_")[0]
        parts = base.split("ǁ")
        owner, name = (parts[1], parts[2]) if len(parts) > 1 else (None, base.removeprefix("x_"))
        orig, mutant = there[f"{base}__mutmut_orig"], there[mangled]
        if outcome in _UNSEEN and wordless(orig) == wordless(mutant):
            outcome = "words"
        where = f"{original.relative_to(ROOT)}:{first_line(source, owner, name)} {name}"
        if outcome:
            change = shortened(ast.unparse(orig), ast.unparse(mutant))
            yield Mutant(outcome=outcome, where=where, change=change)


def run(package: str, tests: list[str]) -> Path:
    """Run mutmut in a copy of the checkout; its directory of results."""
    place = ROOT / ".mutants" / package
    files.remove_tree(place)
    argv = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=True)
    names = [name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]
    for name in names:
        files.copy_file(ROOT / name, place / name)
    tops = {name.partition("/")[0] for name in names} - {"src", "pyproject.toml"}
    values = {"package": package, "tests": tests, "tops": [*tops, "mutants.ini"]}
    with (place / "pyproject.toml").open("a") as file:
        file.write(SETTINGS.format(**values).replace("'", '"'))
    (place / "mutants.ini").write_text(TYPES)
    argv = [sys.executable, "-m", "mutmut", "run", "--max-children", str(os.cpu_count())]
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    with (place / "log").open("w") as log:
        print(f"mutmut runs; its output is in {place / 'log'}", flush=True)
        subprocess.run(argv, cwd=place, env=env, stdout=log, stderr=log, check=True)
    return place / "mutants"


def main() -> None:
    """Run the tool, print the survivors and the score."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("package", help="a package of kernforge, such as trust")
    parser.add_argument("--tests", nargs="+", help="default: the package's folder in tests/unit")
    options = parser.parse_args()
    package = options.package
    results = run(package, options.tests or [f"tests/unit/{package}"])
    mutants: list[Mutant] = []
    for path in sorted((results / "src" / "kernforge" / package).rglob("*.py")):
        original = ROOT / path.relative_to(results)
        mutants += read(path, original)
    counts = collections.Counter(each.outcome for each in mutants)
    for each in mutants:
        if each.outcome in _UNSEEN:
            print(f"{each.where} ({each.outcome})\n{each.change}")
    judged = counts["killed"] + counts["survived"] + counts["no test"]
    share = 100 * counts["killed"] / judged if judged else 100.0
    print(f"{package}: {share:.0f} % of {judged} killed; {dict(counts)}")


if __name__ == "__main__":
    main()

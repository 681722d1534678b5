# SPDX-License-Identifier: Apache-2.0
"""Build wheels of published source distributions, unmodified, without CUDA.

    python scripts/sdists.py --dir DIR [--json benchmarks/results/sdists.json] [NAME...]
    python scripts/sdists.py --dir DIR --wheels DIR --tutorials    # wheels for a GPU machine

Each is fetched from the user's package index, and `kernforge wheel` makes its wheel for one torch,
one Python and one architecture. A wheel for the CPU is also imported.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement

from kernforge.system import files
from kernforge.toolchain.index.index import Index

ROOT = Path(__file__).resolve().parents[1]
DEFAULT = (
    *("torchsort==0.1.10", "torch-spline-conv==1.2.2", "torch-scatter==2.1.2"),
    *("causal-conv1d==1.7.0", "torch-cluster==1.6.3", "mamba-ssm==2.3.2.post1"),
)
TUTORIALS = ("my_extension", "cuda_ops_project", "custom_ops")
_LAST = 12
_RAN = re.compile(r"(\d+) of (\d+) actions were run")


@dataclass(kw_only=True)
class Outcome:
    """The result for one project.

    Attributes:
        sources: number of its CUDA and C++ sources.
        wheel: path of the wheel; None if none was built.
        imports: extensions of the wheel that import here; only for the installed torch.
        why: the last lines of an error.
    """

    name: str
    sources: str
    wall_s: float = 0.0
    wheel: Path | None = None
    actions: int = 0
    compiled: int = 0
    imports: dict[str, bool] = field(default_factory=dict)
    why: str = ""

    @property
    def row(self) -> list[str]:
        """A line of the table in the documentation."""
        ran = f"{self.compiled} of {self.actions}"
        megabytes = self.wheel.stat().st_size / 1e6 if self.wheel else 0.0
        built = "yes" if self.wheel else "no"
        return [self.name, self.sources, built, f"{self.wall_s:.0f}", ran, f"{megabytes:.1f}"]


def fetch(name: str, directory: Path, index: Index) -> Path:
    """A source distribution, unpacked once."""
    requirement = Requirement(name)
    stem = f"{requirement.name.replace('-', '_')}-"
    there = [path for path in directory.glob(f"{stem}*") if path.is_dir()]
    if there:
        return there[0]
    listed = [each for each in index.distributions(requirement.name) if not each.tags]
    allowed = (each for each in listed if requirement.specifier.contains(each.version))
    newest = max(allowed, key=lambda each: each.version)
    with index.transport.body(newest.url) as body:
        data = io.BytesIO(body.read())
    with tarfile.open(fileobj=data) as archive:
        archive.extractall(directory, filter="data")
    return next(path for path in directory.glob(f"{stem}*") if path.is_dir())


def tutorial(name: str, directory: Path) -> Path:
    """A copy of a tutorial's project, with the one mistake in it put right."""
    place = directory / name
    files.remove_tree(place)
    top = ROOT / "tests" / "tutorials" / name
    for path in top.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts:
            files.copy_file(path, place / path.relative_to(top))
    binding = place / "my_op.cpp"
    if binding.is_file():
        text = binding.read_text()
        binding.write_text(text.replace("\nvoid launch", '\nextern "C" void launch'))
    return place


def build(project: Path, options: argparse.Namespace) -> Outcome:
    """Build one project."""
    cuda, cpp = (len(list(project.rglob(pattern))) for pattern in ("*.cu", "*.cpp"))
    outcome = Outcome(name=project.name, sources=f"{cuda} + {cpp}")
    argv = [sys.executable, "-m", "kernforge", "wheel", str(project), "--json"]
    argv += ["--torch", options.torch, "--cuda", options.cuda, "--python", options.python]
    argv += ["--out", str(options.wheels or options.dir / "wheels")]
    env = {**os.environ, "TORCH_CUDA_ARCH_LIST": options.arch}
    start = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    outcome.wall_s = time.monotonic() - start
    if done.returncode != 0:
        outcome.why = "\n".join(done.stderr.strip().splitlines()[-_LAST:])
        return outcome
    (built,) = json.loads(done.stdout)["wheels"]
    outcome.wheel = Path(built["path"])
    for ran, count in _RAN.findall(done.stderr):
        outcome.compiled, outcome.actions = int(ran), int(count)
    if options.cuda == "cpu":
        place = options.dir / "imported" / outcome.wheel.stem
        outcome.imports = import_all(outcome.wheel, place)
    return outcome


def import_all(wheel: Path, place: Path) -> dict[str, bool]:
    """Open each shared object of a wheel in a process that has imported torch."""
    files.remove_tree(place)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)  # noqa: S202 - a wheel that was made here
    found = {}
    for path in sorted(place.rglob("*.so")):
        code = f"import ctypes, torch; ctypes.CDLL({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        found[str(path.relative_to(place))] = done.returncode == 0
    return found


def write(outcomes: list[Outcome], options: argparse.Namespace) -> None:
    """Write the JSON document, with the table of the documentation."""
    target = {"torch": options.torch, "cuda": options.cuda, "python": options.python}
    gpu = options.arch.replace(".", "")
    cuda = "CPU" if options.cuda == "cpu" else f"CUDA {options.cuda}, sm_{gpu}"
    document = {
        "machine": {"target": target, "arch": options.arch},
        "table": {
            "title": f"Unmodified source distributions (torch {options.torch}, {cuda})",
            "head": ["", "sources (CUDA + C++)", "built", "s", "actions that were run", "MB"],
            "rows": [outcome.row for outcome in outcomes],
            "note": "On a machine without CUDA, with two cores that other work shared. Actions "
            "that were not run had their results in the store.",
        },
    }
    options.json.write_text(json.dumps(document, indent=1) + "\n")


def main() -> int:
    """Build the projects; the exit code is 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=DEFAULT)
    parser.add_argument("--dir", type=Path, required=True, help="where sources are unpacked")
    parser.add_argument("--wheels", type=Path, help="where wheels go (default: DIR/wheels)")
    parser.add_argument("--torch", default="2.11")
    parser.add_argument("--cuda", default="13.0")
    parser.add_argument("--python", default="3.12")
    parser.add_argument("--arch", default="9.0")
    parser.add_argument("--tutorials", action="store_true", help="also those of tests/tutorials")
    parser.add_argument("--json", type=Path, help="the document")
    options = parser.parse_args()
    index = Index.from_environment(os.environ)
    projects = [fetch(name, options.dir / "sources", index) for name in options.names]
    if options.tutorials:
        projects += [tutorial(name, options.dir / "tutorials") for name in TUTORIALS]
    outcomes = []
    for project in projects:
        outcome = build(project, options)
        outcomes.append(outcome)
        result = outcome.wheel.name if outcome.wheel else outcome.why
        print(outcome.name, result, f"{outcome.wall_s:.1f} s", outcome.imports or "", flush=True)
    if options.json:
        write(outcomes, options)
    return 0 if all(outcome.wheel for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

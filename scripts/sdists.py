# SPDX-License-Identifier: Apache-2.0
"""Build other people's source distributions unmodified, without CUDA or torch for them.

    python scripts/sdists.py --dir DIR [--json benchmarks/results/sdists.json] [NAME...]
    python scripts/sdists.py --dir DIR --wheels DIR --tutorials    # wheels for a GPU machine

Each is fetched from the user's package index, and `kernforge wheel` makes its wheel for one torch,
one Python and one architecture. A wheel for the torch that is installed here is also imported. What
happened to each is one entry of the JSON document.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
import zipfile
from dataclasses import asdict, dataclass, field
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
_SOURCES = {".cu": "cuda", ".cpp": "cpp"}
_LAST = 12
_TUTORIALS = "tutorials"


@dataclass(kw_only=True)
class Outcome:
    """What happened to one project.

    Attributes:
        name: of the project, with its version.
        cuda: number of CUDA sources in it.
        cpp: number of C++ sources in it.
        built: whether there is a wheel.
        wheel: file name of the wheel.
        megabytes: its size.
        actions: compilations and links that it needs.
        compiled: those that were run now; the other results were in the store.
        wall_s: seconds from start to end.
        imports: extensions that import here; only for the installed torch.
        why: the last lines of an error.
    """

    name: str
    cuda: int = 0
    cpp: int = 0
    built: bool = False
    wheel: str = ""
    megabytes: float = 0.0
    actions: int = 0
    compiled: int = 0
    wall_s: float = 0.0
    imports: dict[str, bool] = field(default_factory=dict)
    why: str = ""


def fetch(name: str, directory: Path, index: Index) -> Path:
    """A source distribution, unpacked once."""
    requirement = Requirement(name)
    stem = f"{requirement.name.replace('-', '_')}-"
    there = [path for path in directory.glob(f"{stem}*") if path.is_dir()]
    if there:
        return there[0]
    found = (d for d in index.sdists(requirement.name) if requirement.specifier.contains(d.version))
    newest = max(found, key=lambda each: each.version)
    data = io.BytesIO(index.transport.body(newest.url).read())
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
    count = {kind: len(list(project.rglob(f"*{suffix}"))) for suffix, kind in _SOURCES.items()}
    outcome = Outcome(name=project.name, **count)
    argv = [sys.executable, "-m", "kernforge", "wheel", str(project), "--json", "--quiet"]
    argv += ["--torch", options.torch, "--cuda", options.cuda, "--python", options.python]
    argv += ["--out", str(options.wheels or options.dir / "wheels")]
    env = {**os.environ, "TORCH_CUDA_ARCH_LIST": options.arch}
    start = time.monotonic()
    done = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    outcome.wall_s = round(time.monotonic() - start, 1)
    if done.returncode != 0:
        outcome.why = "\n".join(done.stderr.strip().splitlines()[-_LAST:])
        return outcome
    (made,) = json.loads(done.stdout)["wheels"]
    wheel = Path(made["path"])
    outcome.built, outcome.wheel = True, wheel.name
    outcome.megabytes = round(wheel.stat().st_size / 1e6, 2)
    outcome.actions, outcome.compiled = made["actions"], made["compiled"]
    if options.cuda == "cpu":
        outcome.imports = dict(import_all(wheel, options.dir / "imported" / wheel.stem))
    return outcome


def import_all(wheel: Path, place: Path) -> list[tuple[str, bool]]:
    """Open each shared object of a wheel in a process that has imported torch."""
    files.remove_tree(place)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(place)  # noqa: S202 - a wheel that was made here
    found = []
    for path in sorted(place.rglob("*.so")):
        code = f"import ctypes, torch; ctypes.CDLL({str(path)!r})"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
        found.append((str(path.relative_to(place)), done.returncode == 0))
    return found


def document(outcomes: list[Outcome], options: argparse.Namespace) -> dict[str, object]:
    """The JSON document, with the table of the documentation."""
    rows = [
        [
            outcome.name,
            f"{outcome.cuda} + {outcome.cpp}",
            "yes" if outcome.built else "no",
            f"{outcome.wall_s:.0f}",
            f"{outcome.compiled} of {outcome.actions}",
            f"{outcome.megabytes:.1f}",
        ]
        for outcome in outcomes
    ]
    gpu = options.arch.replace(".", "")
    cuda = "CPU" if options.cuda == "cpu" else f"CUDA {options.cuda}, sm_{gpu}"
    return {
        "target": {"torch": options.torch, "cuda": options.cuda, "python": options.python},
        "arch": options.arch,
        "variables": {n: text for n, text in os.environ.items() if n.startswith("FORCE_")},
        "projects": [asdict(outcome) for outcome in outcomes],
        "table": {
            "title": f"Source distributions of others, unmodified (torch {options.torch}, {cuda})",
            "head": ["", "sources (CUDA + C++)", "built", "s", "actions that were run", "MB"],
            "rows": rows,
            "note": "On a machine without CUDA, with two cores that other work shared. Actions "
            "that were not run had their results in the store.",
        },
    }


def before(path: Path) -> list[Outcome]:
    """What an earlier run wrote: a run of some projects keeps the entries of the others."""
    if not path.is_file():
        return []
    return [Outcome(**each) for each in json.loads(path.read_text()).get("projects", ())]


def main() -> int:
    """Build what was asked for; the exit code says whether all was built."""
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
    outcomes: list[Outcome] = []
    projects = [fetch(name, options.dir / "sources", index) for name in options.names]
    if options.tutorials:
        projects += [tutorial(name, options.dir / _TUTORIALS) for name in TUTORIALS]
    for project in projects:
        outcome = build(project, options)
        outcomes.append(outcome)
        print(outcome.name, outcome.wheel or outcome.why, f"{outcome.wall_s} s", flush=True)
        if options.json and project.parent.name != _TUTORIALS:
            kept = [each for each in before(options.json) if each.name != outcome.name]
            text = json.dumps(document([*kept, outcome], options), indent=1) + "\n"
            files.write_atomic(options.json, text)
    return 0 if all(outcome.built for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())

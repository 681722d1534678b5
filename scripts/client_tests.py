# SPDX-License-Identifier: Apache-2.0
"""Run the own tests of the hub's client, `kernels`, against kernforge.

    python scripts/client_tests.py [--version 0.17.2] [--json benchmarks/results/client-tests.json]

The source distribution of each version is fetched from the user's package index, and its tests run
four times: with the client itself, and with `import kernels` answered by `kernforge.compat`; each
without a network, and with a hub on this machine whose kernels stand in for those of the public
hub. What counts are the tests that pass with the client in the same conditions. Tests that reach
for private parts are in `client_tests.toml` with the reason; they run, and are counted apart. With
`--device cuda`, on a machine with a GPU, those run that are marked `cuda_only`.
"""

from __future__ import annotations

import argparse
import fnmatch
import importlib.metadata
import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from xml.etree import ElementTree as ET

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

from support import client_names  # noqa: E402 - of the line above
from support.client_kernels import fill  # noqa: E402
from support.hub_server import HubServer  # noqa: E402

from kernforge.compat import shim  # noqa: E402
from kernforge.setuptools.requirements import fetch_sdist  # noqa: E402
from kernforge.system import files  # noqa: E402
from kernforge.system.environment import Environment  # noqa: E402
from kernforge.toolchain.index.index import Index  # noqa: E402

LISTED = ROOT / "scripts" / "client_tests.toml"
FIRST = Version("0.14")
LIMIT_S = 500


@dataclass(kw_only=True)
class Counts:
    """What of the tests of one version passes.

    Attributes:
        passed: of the public tests that pass with the client in the same conditions.
        public: number of those.
        private_passed: of the tests that reach for private parts and pass with the client.
        private: number of those.
        failed: the public tests that do not pass, with the reason where one is listed.
        names: the modules and names of the client that are public.
        answered: of these, what ``import kernels`` has with all parameters and members.
        device: the GPU, for a run of the tests that need one alone; else empty.
        missing: what it lacks, with the reason where one is listed.
    """

    version: str
    passed: int = 0
    public: int = 0
    private_passed: int = 0
    private: int = 0
    failed: dict[str, str] = field(default_factory=dict)
    names: int = 0
    answered: int = 0
    device: str = ""
    missing: dict[str, str] = field(default_factory=dict)


def versions(index: Index) -> list[str]:
    """The versions that the index has a source distribution of, the newest first."""
    found = {archive.version for archive in index.sdists("kernels") if archive.version >= FIRST}
    return [str(version) for version in sorted(found, reverse=True)]


def prepare(version: str, place: Path, index: Index) -> tuple[Path, Path]:
    """The directory of a version's tests, and one where the client itself is installed."""
    project = place / f"kernels-{version}"
    if not project.is_dir():
        fetch_sdist(Requirement(f"kernels=={version}"), index, place)
    (tests,) = (path.parent for path in project.rglob("tests/test_basic.py"))
    client = place / f"client-{version}"
    if not client.is_dir():
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", str(client), f"kernels=={version}"], check=True)
        # Up to 0.16 its compiled part is a distribution of its own.
        (found,) = importlib.metadata.distributions(name="kernels", path=[str(client)])
        own = [text for text in found.requires or () if text.startswith("kernels-data")]
        if own:
            subprocess.run([*install, "--target", str(client), *own], check=True)
    return tests, client


def run(
    tests: Path, path: str, variables: Mapping[str, str], report: Path, *, on_cuda: bool
) -> dict[str, bool]:
    """Run the tests with a PYTHONPATH; whether each passed."""
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
    argv += ["-p", "no:kernforge.testing.plugin", "--continue-on-collection-errors", "-o"]
    argv += ["junit_family=xunit1", f"--junitxml={report}", "--ignore=test_doctest.py"]
    argv += ["-m", "cuda_only"] if on_cuda else []
    # Doctests and benchmarks need a GPU, signatures the public Sigstore.
    argv += ["--ignore=test_benchmarks.py", "--ignore=test_verify.py", "."]
    kept = {
        name: text
        for name, text in os.environ.items()
        if not name.startswith(("HF_", "KERNEL", "KERNFORGE", "LOCAL_KERNELS", "PYTEST_", "PYTHON"))
    }
    env = {**kept, **variables, "PYTHONPATH": path}
    report.unlink(missing_ok=True)
    done = subprocess.run(
        argv, cwd=tests, env=env, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    if not report.is_file():
        sys.exit(done.stdout[-3000:] + done.stderr[-3000:])
    results = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest wrote it just now
        bad = any(child.tag in {"failure", "error", "skipped"} for child in case)
        where = Path(case.get("file") or case.get("classname") or "").name
        name = f"{where}::{case.get('name')}"
        results[name] = not bad and results.get(name, True)
    return results


def listed(name: str, table: Mapping[str, str]) -> str | None:
    """The reason that is listed for a test; None where there is none."""
    return next((why for glob, why in table.items() if fnmatch.fnmatchcase(name, glob)), None)


def gpu() -> str:
    """The GPU of this machine, by its driver's program."""
    argv = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(argv, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0].strip()


def measure(version: str, place: Path, index: Index, *, on_cuda: bool = False) -> Counts:
    """Run the tests of one version with the client and with kernforge, and compare."""
    tests, client = prepare(version, place, index)
    lists = tomllib.loads(LISTED.read_text())
    counts = Counts(version=version, device=gpu() if on_cuda else "")
    if not on_cuda:
        count_names(counts, client, lists["names"])
    seen: set[str] = set()
    for where in ("hub",) if on_cuda else ("offline", "hub"):
        hub = HubServer()
        fill(hub, tests)
        passed = {}
        for who in ("client", "kernforge"):
            home = place / "homes" / f"{version}-{where}-{who}"
            files.remove_tree(home)
            variables = {
                "HF_HOME": str(home / "hf"),
                "HF_HUB_DISABLE_XET": "1",
                "KERNFORGE_HOME": str(home / "kernforge"),
                **({"HF_HUB_OFFLINE": "1"} if where == "offline" else {"HF_ENDPOINT": hub.url}),
            }
            path = str(client)
            if who == "kernforge":
                added = shim.command_environment(Environment(variables), version)
                path = os.pathsep.join((added.pop("PYTHONPATH"), str(ROOT / "src"), str(client)))
                variables |= added
            report = home.parent / f"{home.name}.xml"
            passed[who] = run(tests, path, variables, report, on_cuda=on_cuda)
        hub.close()
        for name, good in passed["client"].items():
            if not good or name in seen:
                continue
            seen.add(name)
            ours = passed["kernforge"].get(name, False)
            if listed(name, lists["private"]) is not None:
                counts.private += 1
                counts.private_passed += ours
                continue
            counts.public += 1
            counts.passed += ours
            if not ours:
                counts.failed[f"{where}: {name}"] = (
                    listed(f"{version}:{name}", lists["differs"]) or "not explained"
                )
    return counts


def count_names(counts: Counts, client: Path, listing: Mapping[str, str]) -> None:
    """Compare the public names of an installed client with ours."""
    compared = client_names.compare(client_names.of_client(str(client)), counts.version)
    counts.names = len(compared)
    for name, lacking in compared.items():
        if lacking:
            counts.missing[name] = listed(name, listing) or f"not explained: {', '.join(lacking)}"
    counts.answered = counts.names - len(counts.missing)


def document(found: list[Counts]) -> dict[str, object]:
    """The JSON document, with the table of the documentation."""
    rows = [
        [
            f"{each.version}, {each.device}" if each.device else each.version,
            f"{each.passed} of {each.public}",
            f"{100 * each.passed / max(each.public, 1):.1f} %",
            f"{each.private_passed} of {each.private}",
            f"{each.answered} of {each.names}" if each.names else "",
        ]
        for each in found
    ]
    return {
        "versions": [vars(each) for each in found],
        "table": {
            "title": "The own tests of `kernels`, with `import kernels` answered by kernforge",
            "head": [
                "version",
                "public tests that pass",
                "",
                "tests of private parts that pass",
                "public names answered",
            ],
            "rows": rows,
            "note": "Of the tests that pass with the client itself in the same conditions: on a CPU, or "
            "those that need a GPU on that one, without a network and with a hub on the machine whose kernels stand in for those of the "
            "public hub. Before 0.17 the source distribution lacks the fixtures of many tests. Names: of "
            "its public modules and names, those that are there with all parameters and members.",
        },
    }


def before(path: Path) -> list[Counts]:
    """What an earlier run wrote: a run of some versions keeps the entries of the others."""
    if not path.is_file():
        return []
    return [Counts(**each) for each in json.loads(path.read_text())["versions"]]


def main() -> int:
    """Measure; the exit code says whether 98 % of the public tests pass in each version."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action="append", help="default: all from 0.14 on")
    parser.add_argument("--dir", type=Path, required=True, help="where sources are unpacked")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--json", type=Path, help="the document")
    options = parser.parse_args()
    index = Index.from_environment(os.environ)
    found = []
    for version in options.version or versions(index):
        counts = measure(version, options.dir.absolute(), index, on_cuda=options.device == "cuda")
        found.append(counts)
        for name, why in counts.failed.items():
            print(f"{version} {name}: {why}")
        for name, why in counts.missing.items():
            print(f"{version} {name}: {why}")
        print(f"{version} names: {counts.answered} of {counts.names} answered")
        print(f"{version} private: {counts.private_passed} of {counts.private} pass")
        if options.json:
            known = {(each.version, each.device): each for each in [*before(options.json), *found]}
            order = sorted(known.values(), key=lambda each: each.device)
            newest = sorted(order, key=lambda each: Version(each.version), reverse=True)
            files.write_atomic(options.json, json.dumps(document(newest), indent=1) + "\n")
        print(f"{version} public: {counts.passed} of {counts.public} pass", flush=True)
    passed, public = sum(each.passed for each in found), sum(each.public for each in found)
    print(f"public: {passed} of {public} pass")
    return 0 if all(each.passed >= 0.98 * each.public for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())

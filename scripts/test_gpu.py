# SPDX-License-Identifier: Apache-2.0
"""Run every test that needs a GPU and keep the counts: ``make test-gpu``.

That is the tests marked ``gpu`` of each kernel, on artifacts that were built before, here or on another
machine, and those below tests/, each file by itself. Those that judge times, or what is left of the GPU's
memory, run alone, after all others.
The result is written anew after each suite, so that a run which is ended loses nothing.

    python scripts/test_gpu.py kernels/relu-scale --sanitizer memcheck
    python scripts/test_gpu.py --builds builds --json gpu-tests-cuda12.json

With ``--builds``, each kernel's tests run on the variants in ``builds/KERNEL``. The loader rightly refuses
a variant for CUDA 12.8 under a torch for CUDA 13.0, so a variant for another CUDA is tested as a copy
whose folder is named as torch's: machine code, fat binary, launchers and static runtime of that CUDA run,
its pairing with a torch for that CUDA is not shown.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
ALONE = ("tests/attacks/", "tests/native/test_jit_memory_gpu.py")
"""Suites that judge times, or what is left of the GPU's memory."""
_NONE_CHOSEN = 5  # pytest's exit code
_TOO_LONG = 124  # as timeout(1) says it
_LIMIT_S = 900
_TO_END_S = 20


def suites() -> list[Path]:
    """All that there are: files of tests that have some for the GPU, and kernels."""
    kernels = [path.parent for path in sorted(ROOT.glob("kernels/*/build.toml"))]
    files = [p for p in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in p.read_text()]
    return [*files, *kernels]


def renamed(builds: Path, into: Path, cuda: str) -> list[str]:
    """Copy the variants of a folder, named as those for a CUDA; returns their own names."""
    own = []
    for variant in sorted(path.parent for path in builds.glob("*/metadata.json")):
        own.append(variant.name)
        name = re.sub(r"-cu\d+-", f"-cu{cuda.replace('.', '')}-", variant.name)
        shutil.copytree(variant, into / name)
    if not own:
        sys.exit(
            f"{builds} has no built variant: build with `kernforge build --build-dir {builds}`"
        )
    return own


def run(
    suite: Path, options: list[str], until: float, builds: Path | None = None
) -> dict[str, object]:
    """Run one of them and count; what is not done by then is interrupted, and the rest counts.

    Args:
        suite: a file of tests or a kernel.
        options: of pytest.
        until: when the run ends at the latest, as time.monotonic() counts.
        builds: the folder of the kernel's variants; None for its own ``build/``.
    """
    began = time.monotonic()
    name = suite.relative_to(ROOT)
    own: list[str] = []
    with tempfile.TemporaryDirectory() as directory:
        report, log = Path(directory) / "report.xml", Path(directory) / "log"
        argv = [sys.executable, "-m", "pytest", "-p", "kernforge.testing.plugin", "-q", "-m", "gpu"]
        argv += ["-rf", "--tb=short", *options, f"--junitxml={report}", str(suite)]
        with log.open("wb") as out:
            environment = dict(os.environ)
            if builds:
                import torch  # noqa: PLC0415

                environment["KERNFORGE_KERNEL_DIR"] = f"{directory}/built"
                own = renamed(builds, Path(directory, "built"), torch.version.cuda)
            process = subprocess.Popen(argv, cwd=ROOT, stdout=out, stderr=out, env=environment)
            code = _ended(process, min(until, began + _LIMIT_S))
        # A file that cannot be collected, or a process that dies, leaves no whole report.
        tree = ET.parse(report) if report.exists() else None  # noqa: S314 - pytest wrote it just now
        said = log.read_text(errors="replace")
    found = tree.getroot()[0] if tree is not None else ET.Element("none")
    counts = {
        name: int(found.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    }
    passed = counts["tests"] - sum(counts[n] for n in ("failures", "errors", "skipped"))
    skips = (one.get("message", "") for one in found.iter("skipped"))
    reasons = Counter(message.replace(f"{ROOT}/", "") for message in skips)
    result = {
        "suite": str(name),
        "variants": own,
        "exit_code": 0 if code == _NONE_CHOSEN else code,
        "seconds": round(time.monotonic() - began, 1),
        "passed": passed,
        **counts,
        "failed": [
            f"{case.get('classname')}::{case.get('name')}"
            for case in found.iter("testcase")
            if case.find("failure") is not None or case.find("error") is not None
        ],
        "why_skipped": dict(sorted(reasons.items())),
    }
    print(f"== {name}\n{said}{name}: {passed} passed, {counts}, exit {code}", flush=True)
    return result


def _ended(process: subprocess.Popen[bytes], until: float) -> int:
    """The exit code; pytest reports what it has when it is interrupted."""
    try:
        return process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGINT)
    try:
        process.wait(_TO_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return _TOO_LONG


def table(results: list[dict[str, object]], head: dict[str, Any]) -> dict[str, object]:
    """What the README shows."""
    names = ("passed", "failures", "errors", "skipped", "seconds")
    many = "an" if head["gpus"] == 1 else str(head["gpus"])
    tools = ", ".join(head["sanitizer"])
    chosen = f" chosen by `{' '.join(head['pytest'])}`" if head["pytest"] else ""
    built = sorted({str(name) for r in results for name in r.get("variants", [])})  # type: ignore[attr-defined]
    command = f"scripts/test_gpu.py --builds`, {', '.join(built)}" if built else "make test-gpu`"
    return {
        "title": f"Tests that need a GPU{tools and f' ({tools})'}, on {many} {head['gpu']}",
        "head": ["suite", *names],
        "rows": [[str(r["suite"]), *(f"{r[name]:,}" for name in names)] for r in results],
        "note": f"`{command}{chosen}; the file has the reason of each test that was skipped.",
    }


class Record:
    """What came of the suites so far, in a file.

    Args:
        place: the file.
        order: the suites; the file keeps their order.
        head: what else it says.
    """

    def __init__(self, place: Path, order: list[Path], head: dict[str, Any]) -> None:
        self.place, self._head = place, head
        self._order = [str(suite.relative_to(ROOT)) for suite in order]
        self.results: list[dict[str, object]] = []
        self._lock = threading.Lock()

    def add(self, result: dict[str, object]) -> None:
        """Write the file anew."""
        with self._lock:
            self.results.append(result)
            self.results.sort(key=lambda one: self._order.index(str(one["suite"])))
            document = {
                **self._head,
                "not_run": [n for n in self._order if n not in {r["suite"] for r in self.results}],
                "suites": self.results,
                "table": table(self.results, self._head),
            }
            part = self.place.with_suffix(".part")
            part.write_text(json.dumps(document, indent=2) + "\n")
            part.replace(self.place)


def main() -> None:
    """Test everything."""
    import torch  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/gpu-tests.json")
    parser.add_argument("suites", nargs="*", type=Path, help="which of them (default: all)")
    parser.add_argument(
        "--builds",
        type=Path,
        metavar="DIR",
        help="test the variants in DIR/KERNEL, whatever CUDA they are for (default: KERNEL/build)",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="run so many beside each other, but for those that must be alone",
    )
    parser.add_argument(
        "--sanitizer",
        action="append",
        default=[],
        metavar="TOOL",
        help="run the kernels' checks under this tool of compute-sanitizer, too; may be repeated",
    )
    parser.add_argument(
        "--pytest", action="append", default=[], metavar="ARGUMENT", help="as --pytest=-x"
    )
    parser.add_argument(
        "--limit",
        type=float,
        default=float("inf"),
        metavar="S",
        help="end all after so many seconds",
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    until = time.monotonic() + arguments.limit
    tools = [word for tool in arguments.sanitizer for word in ("--sanitizer", tool)]
    chosen = [path.resolve() for path in arguments.suites] or suites()
    if arguments.builds:
        chosen = [s for s in chosen if s.is_dir() and (arguments.builds / s.name).is_dir()]
    alone = [s for s in chosen if str(s.relative_to(ROOT)).startswith(ALONE)]
    head = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "cores": len(os.sched_getaffinity(0)),
        "at_once": arguments.at_once,
        "sanitizer": arguments.sanitizer,
        "pytest": arguments.pytest,
    }
    record = Record(arguments.json, chosen, head)
    for group, width in (([s for s in chosen if s not in alone], arguments.at_once), (alone, 1)):
        with ThreadPoolExecutor(width) as pool:
            asked = [
                pool.submit(
                    run,
                    s,
                    [*arguments.pytest, *(tools if s.is_dir() else [])],
                    until,
                    arguments.builds and arguments.builds / s.name,
                )
                for s in group
            ]
            for one in as_completed(asked):
                record.add(one.result())
    print(arguments.json.read_text())
    sys.exit(max(int(str(result["exit_code"])) for result in record.results))


if __name__ == "__main__":
    main()

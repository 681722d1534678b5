# SPDX-License-Identifier: Apache-2.0
"""Run every test that needs a GPU and keep the counts: ``make test-gpu``.

That is the tests marked ``gpu`` of each kernel, on artifacts that were built before, here or on another
machine, and those below tests/, each file by itself.

    python scripts/test_gpu.py kernels/relu-scale --sanitizer memcheck
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[1]
_NONE_CHOSEN = 5  # pytest's exit code
_TOO_LONG = 124  # as timeout(1) says it
_LIMIT_S = 900


def suites() -> list[Path]:
    """All that there are: kernels, and files of tests that have some for the GPU."""
    kernels = [path.parent for path in sorted(ROOT.glob("kernels/*/build.toml"))]
    files = [p for p in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in p.read_text()]
    return [*kernels, *files]


def run(suite: Path, options: list[str]) -> dict[str, object]:
    """Run one of them and count."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-p", "kernforge.testing_plugin", "-q", "-m", "gpu"]
        argv += [*options, f"--junitxml={report}", str(suite)]
        print(f"== {suite.relative_to(ROOT)}", flush=True)
        try:
            code = subprocess.run(argv, cwd=ROOT, check=False, timeout=_LIMIT_S).returncode
        except subprocess.TimeoutExpired:
            code = _TOO_LONG
        # A file that cannot be collected, or a process that dies, leaves no whole report.
        tree = ET.parse(report) if report.exists() else None  # noqa: S314 - pytest wrote it just now
    found = tree.getroot()[0] if tree is not None else ET.Element("none")
    counts = {
        name: int(found.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    }
    passed = counts["tests"] - sum(counts[n] for n in ("failures", "errors", "skipped"))
    reasons = Counter(one.get("message", "") for one in found.iter("skipped"))
    return {
        "suite": str(suite.relative_to(ROOT)),
        "exit_code": 0 if code == _NONE_CHOSEN else code,
        "seconds": round(time.perf_counter() - began, 1),
        "passed": passed,
        **counts,
        "why_skipped": dict(sorted(reasons.items())),
    }


def table(results: list[dict[str, object]], gpu: str) -> dict[str, object]:
    """What the README shows."""
    names = ("passed", "failures", "errors", "skipped", "seconds")
    return {
        "title": f"Tests that need a GPU, on an {gpu}",
        "head": ["suite", *names],
        "rows": [[str(r["suite"]), *(f"{r[name]:,}" for name in names)] for r in results],
        "note": "`make test-gpu`; the file has the reason of each test that was skipped.",
    }


def main() -> None:
    """Test everything."""
    import torch  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/gpu-tests.json")
    parser.add_argument("suites", nargs="*", type=Path, help="which of them (default: all)")
    parser.add_argument(
        "--at-once",
        type=int,
        default=1,
        metavar="N",
        help="run so many beside each other; not for those that measure times",
    )
    parser.add_argument(
        "--sanitizer",
        action="append",
        default=[],
        metavar="TOOL",
        help="run the kernels' checks under this tool of compute-sanitizer, too; may be repeated",
    )
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    options = [word for tool in arguments.sanitizer for word in ("--sanitizer", tool)]
    chosen = [path.resolve() for path in arguments.suites] or suites()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        results = list(pool.map(lambda s: run(s, options if s.is_dir() else []), chosen))
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "gpus": torch.cuda.device_count(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "sanitizer": arguments.sanitizer,
        "suites": results,
        "table": table(results, torch.cuda.get_device_name()),
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document, indent=2))
    sys.exit(max(int(str(result["exit_code"])) for result in results))


if __name__ == "__main__":
    main()

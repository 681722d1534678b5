# SPDX-License-Identifier: Apache-2.0
"""Run every test that needs a GPU: ``make test-gpu``.

    python scripts/test_gpu.py
    python scripts/test_gpu.py kernels/moe tests/native/test_jit_gpu.py -- --sanitizer memcheck

A suite is a file of tests below tests/, or a kernel, whose ``build/`` must be there. Each is a
pytest of its own, so that one which dies, or takes longer than ``--limit`` seconds, costs its own
tests only; words after ``--`` are pytest's. Ends with a table of what passed, and exit code 1 if
something failed.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
_NONE_CHOSEN = 5  # pytest's exit code


def suites() -> list[Path]:
    """Files that have tests for a GPU, and kernels that are built."""
    files = [p for p in sorted(ROOT.glob("tests/**/test_*.py")) if "mark.gpu" in p.read_text()]
    return [*files, *(path.parent for path in sorted(ROOT.glob("kernels/*/build")))]


def run(suite: Path, options: list[str], limit_s: float) -> tuple[bool, str]:
    """Whether nothing failed, and the suite's row of the table."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "--disable-plugin-autoload", "-q", "-m", "gpu"]
        argv += ["-p", "kernforge.testing.plugin", "--tb=short", f"--junitxml={report}"]
        # Interrupted, and not killed, pytest still reports what it did.
        limited = ["timeout", "-s", "INT", "-k", "20", str(limit_s), *argv, *options, str(suite)]
        code = subprocess.run(limited, cwd=ROOT, check=False).returncode
        found = ET.parse(report).getroot()[0].attrib if report.exists() else {}  # noqa: S314 - pytest's
    tests, failed, errors, skipped = (
        int(found.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    )
    counts = (
        f"{tests - failed - errors - skipped} passed, {failed + errors} failed, {skipped} skipped"
    )
    good = code in {0, _NONE_CHOSEN}
    ended = "" if good else f", exit {code}"
    return good, f"{suite}: {counts}, {time.monotonic() - began:.0f} s{ended}"


def main() -> None:
    """Test everything."""
    words = sys.argv[1:]
    at = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("suites", nargs="*", type=Path, help="which of them (default: all)")
    parser.add_argument("--limit", type=float, default=900, metavar="S", help="of each suite")
    arguments = parser.parse_args(words[:at])
    import torch  # noqa: PLC0415 - seconds, which --help need not wait for

    if not torch.cuda.is_available():
        sys.exit("There is no NVIDIA GPU here. Run this on a machine with one.")
    chosen = arguments.suites or [path.relative_to(ROOT) for path in suites()]
    results = [run(suite, words[at + 1 :], arguments.limit) for suite in chosen]
    print(f"\n{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, {torch.__version__}")
    print(*(row for _, row in results), sep="\n")
    sys.exit(0 if all(good for good, _ in results) else 1)


if __name__ == "__main__":
    main()

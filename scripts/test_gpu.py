# SPDX-License-Identifier: Apache-2.0
"""Run the GPU tests of every kernel and keep the outcome: ``make test-gpu``.

The kernels are built before, here or on another machine; see each kernel's tests/conftest.py.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

ROOT = Path(__file__).parents[1]


def run(kernel: Path) -> dict[str, object]:
    """Run one kernel's GPU tests and count."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.xml"
        argv = [sys.executable, "-m", "pytest", "-m", "gpu", f"--junitxml={report}", str(kernel)]
        code = subprocess.run(argv, cwd=ROOT, check=False).returncode
        suite = ET.parse(report).getroot()[0]  # noqa: S314 - pytest wrote it just now
    counts = {
        name: int(suite.get(name, "0")) for name in ("tests", "failures", "errors", "skipped")
    }
    return {"kernel": kernel.name, "exit_code": code, **counts}


def main() -> None:
    """Test every kernel."""
    import torch  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, default=ROOT / "benchmarks/results/gpu-tests.json")
    arguments = parser.parse_args()
    if not torch.cuda.is_available():
        sys.exit("there is no NVIDIA GPU here")
    results = [run(path.parent) for path in sorted(ROOT.glob("kernels/*/build.toml"))]
    document = {
        "date": dt.datetime.now(tz=dt.UTC).date().isoformat(),
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "python": sys.version.split()[0],
        "kernels": results,
    }
    arguments.json.write_text(json.dumps(document, indent=2) + "\n")
    print(json.dumps(document, indent=2))
    sys.exit(max(int(str(result["exit_code"])) for result in results))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the new build, in turns with the last good one.

    python -m kernforge.dev.bench REQUEST OUT

A program, so that a change can end it at once and every run reads the project's present files. It
has few rounds and short turns, so that it is quick but not exact; ``kernforge bench`` is exact.
"""

from __future__ import annotations

import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from kernforge.bench import project, run, stats
from kernforge.bench.workload import Settings
from kernforge.errors import KernforgeError
from kernforge.system import files, garbage

_BLOCK_S = 0.01


def measure(request: project.BenchRequest) -> dict[str, Any]:
    """Results of the last candidate in the form of ``kernforge bench``, and errors.

    Without names of workloads in the request, the first workload is measured.
    """
    work = project.work(request)
    if not request.only:
        work = dict([next(iter(work.items()))])
    settings = Settings(device=request.device, most=stats.FEWEST, block_s=_BLOCK_S)
    report = run.measure(work, settings, lambda _text: None)
    times = [
        {"workload": case.name, **asdict(case.of(mode)[-1])}
        for case in report.workloads
        for mode in settings.modes
        if case.of(mode)
    ]
    return {"times": times, "error": "; ".join(report.failed.values())}


if __name__ == "__main__":
    garbage.collect_rarely()
    try:
        document = measure(project.from_json(sys.argv[1]))
    except KernforgeError as error:
        document = {"error": error.message}
    files.write_json(Path(sys.argv[2]), document)

# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the new build, in turns with the last good one.

It is a separate program, so that a change can end it at once and every run reads the project's
present files: ``python -m kernforge.dev.bench '{"project": ...}'``. It has few rounds and short
turns, so that it is quick but not exact; ``kernforge bench`` measures exactly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from kernforge.bench import project, stats
from kernforge.bench.workload import Settings
from kernforge.errors import KernforgeError
from kernforge.system import files, garbage

_BLOCK_S = 0.01


def measure(order: dict[str, Any]) -> dict[str, Any]:
    """Times of the last build, each with its ratio to the first one's, and what failed.

    Args:
        order: ``project``, ``builds`` (directories of variants: the last good one, if there is one,
            and the new one), ``device``, and ``only``: names of workloads, empty for the first one.

    Raises:
        UsageError: the project has nothing to measure.
    """
    builds, device = order["builds"], order["device"]
    request = project.BenchRequest(
        project=Path(order["project"]),
        kernel=Path(builds[0]),
        against=tuple(builds[1:]),
        only=tuple(order["only"]),
        named=(),
        device=device,
    )
    work = project.workloads(request)[: None if request.only else 1]
    settings = Settings(device=device, most=stats.FEWEST, block_s=_BLOCK_S)
    report = project.measure_all(work, project.candidates(request), settings, lambda _text: None)
    times = []
    for case, mode in ((case, mode) for case in report.cases for mode in settings.modes):
        for measured in case.of(mode)[-1:]:
            median, ratio = measured.median, case.ratio(measured)
            row = {"workload": case.name, "mode": mode, "median_ns": median and median.value}
            row |= {"low_ns": median and median.low, "high_ns": median and median.high}
            row |= {"ratio": ratio and ratio.value}
            row |= {"low": ratio and ratio.low, "high": ratio and ratio.high}
            times.append(row | {"refused": measured.refused or measured.skipped})
    return {"times": times, "error": "; ".join(report.failed.values())}


def main() -> None:
    """Measure by the order of the argument, and write the times to its ``out``."""
    garbage.collect_rarely()
    order = json.loads(sys.argv[1])
    try:
        document = measure(order)
    except KernforgeError as error:
        document = {"error": error.message}
    files.write_json(Path(order["out"]), document)


if __name__ == "__main__":
    main()

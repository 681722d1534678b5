# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the new build, in turns with the last good one.

It is a separate program, so that a change can end it at once and every run reads the project's
present files: ``python -m kernforge.dev.bench '{"project": ...}'``. It has few rounds and short
turns, so that it is quick but not exact; ``kernforge bench`` measures exactly.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernforge.bench.run import Report
from kernforge.bench.workload import Settings
from kernforge.errors import KernforgeError
from kernforge.system import files, garbage

_ROUNDS = 6
_BLOCK_S = 0.01


def measure(order: dict[str, Any]) -> Report:
    """Measure a build, and the last good build, if there is one, before it.

    Args:
        order: ``project``, ``new`` and ``old`` (directories of variants; ``old`` may be None),
            ``device``, and ``only``: names of workloads, empty for the first one.

    Raises:
        UsageError: the project has nothing to measure.
    """
    from kernforge.bench import project  # noqa: PLC0415 - torch's

    builds = [order[name] for name in ("old", "new") if order[name]]
    request = project.BenchRequest(
        project=Path(order["project"]),
        kernel=Path(builds[0]),
        against=tuple(builds[1:]),
        only=tuple(order["only"]),
        named=(),
        device=order["device"],
    )
    work = project.workloads(request)[: None if order["only"] else 1]
    settings = Settings(device=order["device"], most=_ROUNDS, block_s=_BLOCK_S)
    return project.measure_all(work, project.candidates(request), settings, lambda _text: None)


def times(report: Report) -> Iterator[dict[str, Any]]:
    """The new build's times, each with its ratio to the last good build's."""
    for case in report.cases:
        for mode in report.settings.modes:
            for measured in case.of(mode)[-1:]:
                median, ratio = measured.median, case.ratio(measured)
                yield {
                    "workload": case.name,
                    "mode": mode,
                    "median_ns": median.value if median else 0.0,
                    "low_ns": median.low if median else 0.0,
                    "high_ns": median.high if median else 0.0,
                    "ratio": ratio.value if ratio else None,
                    "low": ratio.low if ratio else None,
                    "high": ratio.high if ratio else None,
                    "refused": "" if median else measured.refused or measured.skipped,
                }


def main() -> None:
    """Measure by the order of the argument, and write the times to its ``out``."""
    garbage.collect_rarely()
    order = json.loads(sys.argv[1])
    document: dict[str, Any]
    try:
        report = measure(order)
        document = {"times": list(times(report)), "error": "; ".join(report.failed.values())}
    except KernforgeError as error:
        document = {"error": error.message}
    files.write_atomic(Path(order["out"]), json.dumps(document))


if __name__ == "__main__":
    main()

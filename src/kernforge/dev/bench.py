# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the kernel, in turns with its last good build.

It is a separate program, so that a change can end it at once and every run reads the project's
present files: ``python -m kernforge.dev.bench '{"project": ...}'``. It has few rounds and short
turns, so that it is quick but not exact; ``kernforge bench`` measures exactly.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench.workload import Settings
from kernforge.errors import KernforgeError
from kernforge.system import files, garbage

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kernforge.bench.run import Report

_ROUNDS = 6
_WIDTH = 0.05
_BLOCK_S = 0.01


def measure(order: dict[str, Any]) -> Report:
    """Measure a build, and the last good build if there is one.

    Args:
        order: ``project``, ``new`` and ``old`` (directories of variants; ``old`` may be None),
            ``device``, and ``only``: names of workloads, empty for the first one.

    Raises:
        UsageError: the project has nothing to measure.
    """
    from kernforge.bench import project  # noqa: PLC0415 - torch's

    request = project.BenchRequest(
        project=Path(order["project"]),
        kernel=Path(order["new"]),
        against=(order["old"],) if order["old"] else (),
        only=tuple(order["only"]),
        device=order["device"],
    )
    work = project.workloads(request)[: None if order["only"] else 1]
    racing = [c for c in project.candidates(request) if c.kind in {"kernel", "published"}]
    settings = Settings(
        device=order["device"], least=_ROUNDS, most=_ROUNDS, width=_WIDTH, block_s=_BLOCK_S
    )
    return project.measure_all(work, racing, settings, lambda _text: None)


def times(report: Report) -> Iterator[dict[str, Any]]:
    """The kernel's times, each with its ratio to the last good build's."""
    for case in report.cases:
        for measured in case.measurements:
            if measured.kind != "kernel":
                continue
            row: dict[str, Any] = {"workload": case.name, "mode": measured.mode}
            median = measured.median
            if median is None:
                yield row | {"refused": measured.refused or measured.skipped}
                continue
            row |= {"median_ns": median.value, "low_ns": median.low, "high_ns": median.high}
            others = (each for each in case.of(measured.mode) if each.kind == "published")
            ratio = next((case.ratio(each) for each in others), None)
            if ratio is not None:  # the other way about: how the last good one is to the kernel
                row |= {"ratio": 1 / ratio.value, "low": 1 / ratio.high, "high": 1 / ratio.low}
            yield row


def main() -> None:
    """Measure by the order of the argument, and write the times to its ``out``."""
    garbage.collect_rarely()
    order = json.loads(sys.argv[1])
    document: dict[str, Any]
    try:
        document = {"times": list(times(measure(order)))}
    except KernforgeError as error:
        document = {"error": error.message}
    files.write_atomic(Path(order["out"]), json.dumps(document))


if __name__ == "__main__":
    main()

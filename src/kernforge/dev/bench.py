# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the kernel, in turns with its last good build.

It is a separate program, so that a change can end it at once and every run reads the project's
present files: ``python -m kernforge.dev.bench '{"project": ...}'``. It has few rounds and short turns,
so that it is quick but not exact; ``kernforge bench`` measures exactly.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from kernforge.bench.engine.workload import Candidate, Settings
from kernforge.dev.rounds import TimeRatio
from kernforge.errors import KernforgeError
from kernforge.system import files, garbage

NEW, OLD = "kernel", "last good"
_ROUNDS = 6
_WIDTH = 0.05
_BLOCK_S = 0.01
_PATIENCE_S = 60.0


def measure(
    project: Path, new: Path, old: Path | None, *, device: str, only: Sequence[str]
) -> dict[str, Any]:
    """Measure a build, and an older build if there is one.

    Args:
        new: directory of the built variant.
        old: directory of the last good build's variant; None if there is none.
        only: names of workloads; empty for the first one.

    Returns:
        The document of ``bench.run``.

    Raises:
        UsageError: the project has nothing to measure.
    """
    from kernforge.bench import api as bench  # noqa: PLC0415 - torch's

    request = bench.BenchRequest(project=project, kernel=new, only=tuple(only), eager=False)
    work = bench.workloads(request)[: None if only else 1]
    candidates = [
        candidate for candidate in bench.candidates(request) if candidate.kind == "kernel"
    ]
    if old is not None:
        candidates += [
            Candidate(name=OLD, kind="kernel", file=candidate.file, kernel=str(old))
            for candidate in candidates
        ]
    settings = Settings(
        device=device,
        modes=("cold", "hot"),
        least=_ROUNDS,
        most=_ROUNDS,
        width=_WIDTH,
        block_s=_BLOCK_S,
        patience_s=_PATIENCE_S,
    )
    return bench.run(work, candidates, settings, lambda _text: None)


def ratios(document: dict[str, Any]) -> tuple[TimeRatio, ...]:
    """Times of the kernel, each with its ratio to the last good build's."""
    time_ratios: list[TimeRatio] = []
    for case in document["workloads"]:
        rows = {(row["candidate"], row["mode"]): row for row in case["results"]}
        time_ratios += [
            _ratio(case["name"], mode, now, rows.get((OLD, mode), {}))
            for (name, mode), now in rows.items()
            if name == NEW
        ]
    return tuple(time_ratios)


def _ratio(workload: str, mode: str, now: dict[str, Any], before: dict[str, Any]) -> TimeRatio:
    if "median_ns" not in now:
        reason = now["refused"] or now["skipped"]
        return TimeRatio(workload=workload, mode=mode, refused=reason)
    times = {key: now[key] for key in ("median_ns", "low_ns", "high_ns")}
    if "median_ns" not in before:
        return TimeRatio(workload=workload, mode=mode, **times)
    ratio, low, high = _of_rounds(now, before)
    return TimeRatio(
        workload=workload,
        mode=mode,
        **times,
        before_ns=before["median_ns"],
        ratio=ratio,
        low=low,
        high=high,
    )


def _of_rounds(now: dict[str, Any], before: dict[str, Any]) -> tuple[float, float, float]:
    """Ratio of the kernel's time to the last good build's, with its interval; paired if available."""
    # The other way about: how the last good one is to the kernel.
    if paired := before.get("beside"):
        return 1 / paired["value"], 1 / paired["high"], 1 / paired["low"]
    return (
        now["median_ns"] / before["median_ns"],
        now["low_ns"] / before["high_ns"],
        now["high_ns"] / before["low_ns"],
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Measure by the order of the argument, and write the document to its ``out``."""
    # Candidates run in other process groups, some of them paused: this process ends them.
    signal.signal(signal.SIGTERM, _interrupt)
    garbage.collect_rarely()
    order = json.loads(sys.argv[1])
    old = order["old"]
    try:
        document = measure(
            Path(order["project"]),
            Path(order["new"]),
            Path(old) if old else None,
            device=order["device"],
            only=order["only"],
        )
    except KeyboardInterrupt:
        sys.exit(130)
    except KernforgeError as error:
        document = {"error": error.message}
    files.write_atomic(Path(order["out"]), json.dumps(document))


if __name__ == "__main__":
    main()

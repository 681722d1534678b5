# SPDX-License-Identifier: Apache-2.0
"""The short benchmark of ``kernforge dev``: the kernel, in turns with its last good build.

It is a program by itself, so that a change can end it at once and every run sees the project's
files as they are: ``python -m kernforge.dev.bench '{"project": ...}'``. Few rounds and short turns
make it quick, not exact; its intervals say how exact. ``kernforge bench`` measures.
"""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench.engine.workload import Candidate, Settings
from kernforge.dev.rounds import Ratio
from kernforge.errors import KernforgeError
from kernforge.system import garbage

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import FrameType

NEW, OLD = "kernel", "last good"
_ROUNDS = (6, 6)
_WIDTH = 0.05
_BLOCK_S = 0.01
_PATIENCE_S = 60.0
WORKLOADS = 1


def measure(
    project: Path, new: Path, old: Path | None, *, device: str, only: Sequence[str]
) -> dict[str, Any]:
    """Measure a build, beside an older one if there is one.

    Args:
        project: with ``benchmarks/workloads.py`` and ``benchmarks/candidates.py``.
        new: directory of the built variant.
        old: that of the last good one.
        device: ``cpu`` or ``cuda``.
        only: workloads; the first one when empty.

    Returns:
        The document of ``bench.run``.

    Raises:
        UsageError: the project says nothing to measure.
    """
    from kernforge.bench import api as bench  # noqa: PLC0415 - torch's

    request = bench.BenchRequest(project=project, kernel=new, only=tuple(only), eager=False)
    work = bench.workloads(request)[: None if only else WORKLOADS]
    racing = [one for one in bench.candidates(request) if one.kind == "kernel"]
    if old is not None:
        racing += [
            Candidate(name=OLD, kind="kernel", file=one.file, kernel=str(old)) for one in racing
        ]
    settings = Settings(
        device=device,
        modes=("cold", "hot"),
        least=_ROUNDS[0],
        most=_ROUNDS[1],
        width=_WIDTH,
        block_s=_BLOCK_S,
        patience_s=_PATIENCE_S,
    )
    return bench.run(work, racing, settings, lambda _text: None)


def ratios(document: dict[str, Any]) -> tuple[Ratio, ...]:
    """Times of the kernel, each with its ratio to the last good build's."""
    found: list[Ratio] = []
    for case in document["workloads"]:
        rows = {(row["candidate"], row["mode"]): row for row in case["results"]}
        found += [
            _ratio(case["name"], mode, now, rows.get((OLD, mode), {}))
            for (name, mode), now in rows.items()
            if name == NEW
        ]
    return tuple(found)


def _ratio(workload: str, mode: str, now: dict[str, Any], before: dict[str, Any]) -> Ratio:
    if "median_ns" not in now:
        why = now["refused"] or now["skipped"]
        return Ratio(workload=workload, mode=mode, refused=why)
    one = {key: now[key] for key in ("median_ns", "low_ns", "high_ns")}
    if "median_ns" not in before:
        return Ratio(workload=workload, mode=mode, **one)
    ratio, low, high = _of_rounds(now, before)
    return Ratio(
        workload=workload,
        mode=mode,
        **one,
        before_ns=before["median_ns"],
        ratio=ratio,
        low=low,
        high=high,
    )


def _of_rounds(now: dict[str, Any], before: dict[str, Any]) -> tuple[float, float, float]:
    """The kernel's time over the last good build's, with its interval; round by round if told so."""
    if told := before.get("beside"):  # The other way about: how the last good one is to the kernel.
        return 1 / told["value"], 1 / told["high"], 1 / told["low"]
    return (
        now["median_ns"] / before["median_ns"],
        now["low_ns"] / before["high_ns"],
        now["high_ns"] / before["low_ns"],
    )


def _interrupt(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Measure what the argument says and write the document to its ``out``."""
    from kernforge.system import files  # noqa: PLC0415

    # Candidates run in process groups of their own, some of them paused: who ends this ends them.
    signal.signal(signal.SIGTERM, _interrupt)
    garbage.collect_rarely()
    asked = json.loads(sys.argv[1])
    old = asked["old"]
    try:
        found = measure(
            Path(asked["project"]),
            Path(asked["new"]),
            Path(old) if old else None,
            device=asked["device"],
            only=asked["only"],
        )
    except KeyboardInterrupt:
        sys.exit(130)
    except KernforgeError as error:
        found = {"error": error.message}
    files.write_atomic(Path(asked["out"]), json.dumps(found))


if __name__ == "__main__":
    main()

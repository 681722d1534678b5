# SPDX-License-Identifier: Apache-2.0
"""A profiler's view of one call: Nsight Compute, or torch.profiler where that is not installed.

``python -m kernforge.bench.profile REQUEST CANDIDATE`` is the program that Nsight Compute runs: it
makes one call, warmed up, inside an NVTX range.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kernforge.bench import project, report
from kernforge.bench.project import BenchRequest
from kernforge.bench.run import Case, Report, function_of
from kernforge.system import process
from kernforge.system.process import Command
from kernforge.system.tables import page

_RANGE = "kernforge"
_WARM_UP = 3
_ROWS = 15
_PLACES = ("ncu", "/usr/local/cuda/bin/ncu")
_LONGEST_S = 900.0
_PAGE = page("how-to/author/find-where-the-time-goes")


def lines(measured: Report, request: BenchRequest, note: Callable[[str], None]) -> Iterator[str]:
    """For each workload its line of the roofline, and the profiler's page.

    The kernel is profiled (or else the first candidate), or those that the request names.
    """
    ncu = _find_ncu() if request.device == "cuda" else None
    if request.device == "cuda" and ncu is None:
        note(f"Nsight Compute (ncu) is not here, torch.profiler has no counters: see {_PAGE}")
    for case in measured.workloads:
        one = replace(request, only=(case.name,))
        for name in request.named or (case.results[0].candidate,):
            yield f"\n{_line(case, name)}"
            yield (_by_ncu(ncu, one, name, note) if ncu else "") or _by_torch(one, name)


def _find_ncu() -> str | None:
    """The path of Nsight Compute; None where it is not installed."""
    packaged = sorted(map(str, Path("/opt/nvidia/nsight-compute").glob("*/ncu")), reverse=True)
    for place in (*_PLACES, *packaged):
        with contextlib.suppress(OSError):
            process.run(Command(argv=(place, "--version"), timeout=60.0))
            return place
    return None


def _line(case: Case, name: str) -> str:
    """A candidate's row of the report in its first mode, in one line."""
    result = next(each for each in case.results if each.candidate == name)
    cells = zip(report.HEAD[2:], report.cells(case, result), strict=True)
    values = ", ".join(f"{head} {cell}" for head, cell in cells if cell)
    return f"{case.name}, {name}, {result.mode}: {values}"


def _by_ncu(ncu: str, request: BenchRequest, name: str, note: Callable[[str], None]) -> str:
    """The page of Nsight Compute; "" where it has no counters, with a note of the reason."""
    argv = [ncu, "--set", "detailed", "--page", "details", "--nvtx"]
    argv += ["--nvtx-include", f"{_RANGE}/", "--clock-control", "none"]
    argv += [sys.executable, "-m", "kernforge.bench.profile"]
    argv += [request.to_json(), name]
    done = process.run(Command(argv=tuple(argv), timeout=_LONGEST_S))
    text = done.stdout + done.stderr
    if done.returncode == 0 and "No kernels were profiled" not in text:
        shown = [line for line in done.stdout.splitlines() if not line.startswith("==PROF==")]
        return "\n".join(shown).strip()
    reasons = [line for line in text.splitlines() if "ERR_" in line] or text.splitlines()
    note(f"Nsight Compute counted nothing: {' '.join(reasons[-1:])}; see {_PAGE}")
    return ""


def _by_torch(request: BenchRequest, name: str) -> str:
    """The table of torch.profiler."""
    from torch.profiler import ProfilerActivity, profile

    call = _prepared(request, name)
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if request.device == "cuda" else []
    with profile(activities=activities) as profiler:
        call()
    by = f"self_{request.device}_time_total"
    return str(profiler.key_averages().table(sort_by=by, row_limit=_ROWS, max_name_column_width=60))


def _prepared(request: BenchRequest, name: str) -> Callable[[], None]:
    """A call of a candidate on fresh inputs, warmed up, that waits for the GPU."""
    import torch

    ((make_subject, candidates),) = project.work(request).values()
    function = function_of(next(c for c in candidates if c.name == name), request.device)
    subject = make_subject()
    wait = torch.cuda.synchronize if request.device == "cuda" else lambda: None

    def call() -> None:
        function(*subject.calls[0])
        wait()

    for number in range(_WARM_UP):
        subject.renew(number, 1)
        call()
    subject.renew(_WARM_UP, 1)
    wait()
    return call


if __name__ == "__main__":
    import torch

    prepared = _prepared(project.from_json(sys.argv[1]), sys.argv[2])
    torch.cuda.nvtx.range_push(_RANGE)
    prepared()
    torch.cuda.nvtx.range_pop()

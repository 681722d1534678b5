# SPDX-License-Identifier: Apache-2.0
"""What a profiler says of one call: Nsight Compute, or torch.profiler where that is not here.

``python -m kernforge.bench.profile ORDER`` is the program that Nsight Compute runs: it makes one
call, warmed up, inside an NVTX range.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernforge.bench import project, report
from kernforge.bench.verify import Inputs
from kernforge.errors import UsageError, page
from kernforge.system import process
from kernforge.system.process import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kernforge.bench.run import Case, Report

_RANGE = "kernforge"
_WARM_UP = 3
_ROWS = 15
_PLACES = ("/usr/local/cuda/bin", "/opt/nvidia/nsight-compute/*")
_LONGEST_S = 900.0
_PAGE = page("how-to/author/find-where-the-time-goes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One call to profile."""

    project: str
    kernel: str | None
    workload: str
    candidate: str
    device: str
    seed: int
    sizes: tuple[int, ...] = ()


def find_ncu() -> str | None:
    """The path of Nsight Compute; None where it is not installed."""
    places = [str(path) for each in _PLACES for path in sorted(Path("/").glob(f"{each[1:]}/ncu"))]
    for place in ("ncu", *reversed(places)):
        try:
            process.run(Command(argv=(place, "--version"), timeout=60.0))
        except OSError:
            continue
        return place
    return None


def lines(
    measured: Report,
    request: project.BenchRequest,
    names: tuple[str, ...],
    note: Callable[[str], None],
) -> Iterator[str]:
    """For each workload and candidate its line of the roofline, and what the profiler says.

    Raises:
        UsageError: there is no candidate of a name.
    """
    settings = measured.settings
    known = dict.fromkeys(m.candidate for case in measured.cases for m in case.measurements)
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"no candidate is called {', '.join(unknown)}",
            hint=f"there are {', '.join(map(repr, known))}",
        )
    ncu = find_ncu() if settings.device == "cuda" else None
    if settings.device == "cuda" and ncu is None:
        note(f"Nsight Compute (ncu) is not here, torch.profiler has no counters: see {_PAGE}")
    for case in measured.cases:
        for name in names:
            order = Order(
                project=str(request.project.resolve()),
                kernel=str(request.kernel.resolve()) if request.kernel else None,
                workload=case.name,
                candidate=name,
                device=settings.device,
                seed=settings.seed,
                sizes=request.sizes,
            )
            yield f"\n{roofline(case, name)}"
            text = _by_ncu(ncu, order, note) if ncu else ""
            yield text or _by_torch(order)


def roofline(case: Case, name: str) -> str:
    """A candidate's time beside the roof, in its first mode."""
    measured = next(each for each in case.measurements if each.candidate == name)
    median, mode = measured.median, measured.mode
    if median is None:
        return f"{case.name}, {name}: {measured.refused or measured.skipped}"
    roof = case.roof_ns(mode)
    rates = [f"{case.bytes / median.value:.0f} GB/s"] if case.bytes else []
    rates += [f"{case.flops / median.value / 1e3:.1f} TFLOP/s"] if case.flops else []
    return (
        f"{case.name}, {name}: {report.duration(median.value)} ({mode}), "
        f"{roof / median.value:.1%} of the roof of {report.duration(roof)}, bound by "
        f"{case.bound(mode)}, {', '.join(rates)}"
    )


def _by_ncu(ncu: str, order: Order, note: Callable[[str], None]) -> str:
    """The page of Nsight Compute; empty where it counts nothing, with a word why."""
    argv = [ncu, "--set", "detailed", "--page", "details", "--nvtx"]
    argv += ["--nvtx-include", f"{_RANGE}/", "--clock-control", "none"]
    document = json.dumps({name: getattr(order, name) for name in Order.__slots__})
    argv += [sys.executable, "-m", "kernforge.bench.profile", document]
    done = process.run(Command(argv=tuple(argv), timeout=_LONGEST_S))
    told = [line for line in done.stdout.splitlines() if not line.startswith("==PROF==")]
    if done.returncode == 0 and "No kernels were profiled" not in done.stdout:
        return "\n".join(told).strip()
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        note(
            "Nsight Compute may not read the GPU's counters (ERR_NVGPUCTRPERM): an administrator "
            f"allows it, see {_PAGE}"
        )
    else:
        last = (done.stdout + done.stderr).strip().splitlines()[-1:]
        note(f"Nsight Compute counted nothing: {' '.join(last)}")
    return ""


def _by_torch(order: Order) -> str:
    """The table of torch.profiler."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    call = _prepared(order)
    activities = [ProfilerActivity.CPU]
    activities += [ProfilerActivity.CUDA] if order.device == "cuda" else []
    with profile(activities=activities) as seen:
        call()
        if order.device == "cuda":
            torch.cuda.synchronize()
    by = f"self_{'cuda' if order.device == 'cuda' else 'cpu'}_time_total"
    return str(seen.key_averages().table(sort_by=by, row_limit=_ROWS, max_name_column_width=60))


def _prepared(order: Order) -> Callable[[], Any]:
    """A call of a candidate, warmed up, on fresh inputs."""
    import torch

    request = project.BenchRequest(
        project=Path(order.project),
        kernel=Path(order.kernel) if order.kernel else None,
        only=(order.workload,),
        sizes=tuple(order.sizes),
        device=order.device,
    )
    (workload,) = project.workloads(request)
    named = {each.name: each for each in project.candidates(request)}[order.candidate]
    function = named.function
    if named.kind == "compiled":
        function = torch.compile(function, fullgraph=True, dynamic=False)
    inputs = Inputs(workload, order.device, order.seed)
    for number in range(_WARM_UP):
        inputs.renew(number, 1)
        function(*inputs.arguments(0))
    inputs.renew(_WARM_UP, 1)
    if order.device == "cuda":
        torch.cuda.synchronize()
    return lambda: function(*inputs.arguments(0))


def main(order: Order) -> None:
    """Make the call that Nsight Compute counts."""
    import torch

    call = _prepared(order)
    torch.cuda.nvtx.range_push(_RANGE)
    call()
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()


if __name__ == "__main__":
    main(Order(**json.loads(sys.argv[1])))

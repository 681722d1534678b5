# SPDX-License-Identifier: Apache-2.0
"""The process that a tool profiles: ``python -m kernforge.bench.profiler.program START``.

It makes one call of each candidate on each workload, warmed up, on inputs of its own, and encloses it
in what the tool looks for: for Nsight Compute a range of the CUDA profiler with an NVTX range in it,
else torch.profiler, which is CUPTI. The inputs are drawn as a judge of the benchmark draws them.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernforge.bench import api as bench
from kernforge.bench.engine import messages, verify
from kernforge.bench.engine.contender import Contender
from kernforge.bench.engine.messages import BeginWorkload, BufferAddress, WorkerStart
from kernforge.bench.engine.workload import COPY, SIDE, Candidate, Layout, Workload
from kernforge.bench.profiler import ncu
from kernforge.system import files

WARM_UP = 3
TRACES = 5
"""Calls that torch.profiler sees, of which the median counts."""
RESULT = "calls.json"
_LONGEST = 500  # Characters of a reason.


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileStart:
    """What to call.

    Attributes:
        project: the folder of the project.
        workloads: names of its workloads.
        moved: bytes that each must move at least, which the copy moves.
        candidates: what is called on each of them, after the copy.
        counts: whether Nsight Compute runs this process; else torch.profiler writes traces.
        seed: of the inputs.
        results: the directory to write to.
    """

    project: str
    workloads: tuple[str, ...]
    moved: tuple[int, ...]
    candidates: tuple[Candidate, ...]
    counts: bool
    seed: int
    results: str


def number_of(workload: int, candidate: int, candidates: int) -> int:
    """The number of a call, by the positions of its workload and its candidate; -1 is the copy."""
    return workload * (candidates + 1) + candidate + 1


def trace_name(number: int, trace: int) -> str:
    """The file of one of a call's traces."""
    return f"{number}-{trace}.json"


class _Ranges:
    """Marks a call for Nsight Compute."""

    def record(self, number: int, prepare: Callable[[], Callable[[], Any]]) -> None:
        """Make one call inside a range of the profiler."""
        import torch

        call = prepare()
        torch.cuda.synchronize()
        torch.cuda.profiler.start()
        torch.cuda.nvtx.range_push(f"{ncu.RANGE}{number}")
        try:
            call()
            torch.cuda.synchronize()
        finally:
            torch.cuda.nvtx.range_pop()
            torch.cuda.profiler.stop()


class _Traces:
    """Writes a trace of each call, which finds cold caches."""

    def __init__(self, into: Path) -> None:
        import torch

        self._into = into
        size = torch.cuda.get_device_properties(0).L2_cache_size
        self._dirt = torch.zeros(4 * size, dtype=torch.uint8, device="cuda")

    def record(self, number: int, prepare: Callable[[], Callable[[], Any]]) -> None:
        """Make some calls, each after the L2 cache was overwritten."""
        import torch
        from torch.profiler import ProfilerActivity, profile

        for trace in range(TRACES):
            call = prepare()
            self._dirt.add_(1)
            torch.cuda.synchronize()
            with profile(activities=[ProfilerActivity.CUDA]) as seen:
                call()
                torch.cuda.synchronize()
            seen.export_chrome_trace(str(self._into / trace_name(number, trace)))


def main(start: ProfileStart) -> None:
    """Make all calls, and write why some could not be made."""
    import torch

    found = bench.workloads(
        bench.BenchRequest(project=Path(start.project), only=tuple(start.workloads))
    )
    by_name = {each.name: each for each in found}
    candidates = [_contender(each) for each in (COPY, *start.candidates)]
    recorder = _Ranges() if start.counts else _Traces(Path(start.results))
    random = torch.Generator(device="cuda").manual_seed(start.seed)
    failed: dict[int, str] = {}
    for place, (name, moved) in enumerate(zip(start.workloads, start.moved, strict=True)):
        for number, contender in enumerate(candidates):
            call = number_of(place, number - 1, len(start.candidates))
            try:
                _record(recorder, call, contender, _task(by_name[name], moved), random)
            except Exception as error:  # noqa: BLE001 - whatever a candidate raises is its result
                failed[call] = f"raised {type(error).__name__}: {error}"[:_LONGEST]
    files.write_atomic(Path(start.results) / RESULT, json.dumps({"failed": failed}))


def _contender(candidate: Candidate) -> Contender:
    return Contender(
        WorkerStart(
            device="cuda",
            candidate=candidate,
            buffer=BufferAddress(size=0),
            side=SIDE["cuda"],
            cpu=None,
        )
    )


def _task(workload: Workload, moved: int) -> tuple[Workload, BeginWorkload]:
    """A workload, and what the engine's copy needs of it."""
    return workload, BeginWorkload(
        layout=Layout(inputs=workload.tensors, outputs=()),
        arguments=(),
        inplace=tuple(workload.inplace),
        late=workload.late,
        held=(),
        bytes=moved,
        dtype="float32",
    )


def _record(
    recorder: _Ranges | _Traces,
    number: int,
    contender: Contender,
    task: tuple[Workload, BeginWorkload],
    random: Any,
) -> None:
    """Warm up, and make the call before the tool.

    Raises:
        NotImplementedError: the candidate does not compute this workload.
    """
    workload, work = task
    function = contender.of(work)
    for _ in range(WARM_UP):
        if function(*verify.draw(workload, random)) is NotImplemented:
            raise NotImplementedError("it does not compute this workload")
    recorder.record(number, lambda: functools.partial(function, *verify.draw(workload, random)))


if __name__ == "__main__":
    main(messages.decode(sys.argv[1], [ProfileStart]))

# SPDX-License-Identifier: Apache-2.0
"""Profile a project's workloads: their times beside the roofline, and what their kernels do."""

from __future__ import annotations

import dataclasses
import json
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

from kernforge.bench import api as bench
from kernforge.bench.engine import messages
from kernforge.bench.engine.workload import Candidate, Settings
from kernforge.bench.profiler import cupti, limit, ncu, program
from kernforge.bench.profiler.launches import KernelLaunch, document, same_calls, span_ns
from kernforge.bench.profiler.names import shortened
from kernforge.errors import KernforgeError, MachineError, UsageError, page
from kernforge.system import files, process
from kernforge.system.process import Command

FORMAT = "kernforge-profile-1"
Tool: TypeAlias = Literal["auto", "ncu", "torch"]
_ROUNDS = 6
_LONGEST_S = 1800.0
_MODULE = "kernforge.bench.profiler.program"
_PAGE = page("how-to/author/find-where-the-time-goes")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRequest:
    """What to profile; the first three are those of ``BenchRequest``.

    Attributes:
        candidates: names of candidates, as ``kernforge bench`` shows them.
        tool: what counts: ``ncu``, ``torch`` for torch.profiler, ``auto`` for the first that is there.
    """

    project: Path
    kernel: Path | None = None
    only: tuple[str, ...] = ()
    candidates: tuple[str, ...] = ("kernel",)
    tool: Tool = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """What a tool saw: the launches of each call, and why others were not made."""

    tool: dict[str, Any]
    launches: dict[int, list[KernelLaunch]]
    failed: dict[int, str]


def run(request: ProfileRequest, note: Callable[[str], None]) -> dict[str, Any]:
    """Time the candidates as ``kernforge bench`` does, in mode cold, then profile one call of each.

    Returns:
        The document of format ``kernforge-profile-1``.

    Raises:
        UsageError: there is no GPU, no such workload, candidate or tool.
        MachineError: ``ncu`` is asked for, and may not or cannot count here.
        KernforgeError: the profiled process ended with an error.
    """
    import torch

    asked = bench.BenchRequest(project=request.project, kernel=request.kernel, only=request.only)
    work, racing = bench.workloads(asked), chosen(bench.candidates(asked), request.candidates)
    if not torch.cuda.is_available():
        raise UsageError(
            "this torch sees no CUDA device, and a profile is what a GPU counts",
            hint="run it on a machine with an NVIDIA GPU; `kernforge bench --device cpu` measures here",
        )
    tool = _find(request.tool, note)
    settings = Settings(device="cuda", modes=("cold",), least=_ROUNDS, most=_ROUNDS)
    measured = bench.run(work, racing, settings, note, project=request.project.resolve().name)
    torch.cuda.empty_cache()
    moved = tuple(case["ceilings"]["cold"]["bytes"] for case in measured["workloads"])
    start = program.ProfileStart(
        project=str(request.project.resolve()),
        workloads=tuple(each.name for each in work),
        moved=moved,
        candidates=tuple(racing),
        counts=tool != "torch",
        seed=secrets.randbits(62),
        results="",
    )
    seen = _profile(tool, start, note, may_fall_back=request.tool == "auto")
    return {
        "format": FORMAT,
        "project": measured["project"],
        "machine": measured["machine"],
        "settings": measured["settings"],
        "tool": seen.tool,
        "workloads": [
            workload_document(case, place, racing, seen.launches, seen.failed)
            for place, case in enumerate(measured["workloads"])
        ],
    }


def chosen(candidates: Sequence[Candidate], names: Sequence[str]) -> list[Candidate]:
    """The candidates of these names.

    Raises:
        UsageError: there is none of a name.
    """
    known = {each.name: each for each in candidates}
    if unknown := [name for name in names if name not in known]:
        raise UsageError(
            f"no candidate is called {', '.join(unknown)}",
            hint=f"there are {', '.join(map(repr, known))}",
        )
    return [known[name] for name in dict.fromkeys(names)]


def _find(tool: Tool, note: Callable[[str], None]) -> str:
    """The path of Nsight Compute, or ``torch``.

    Raises:
        UsageError: ``ncu`` is asked for and not here.
    """
    if tool == "torch":
        return tool
    for place in ncu.PLACES:
        path = Path(place)
        found = sorted(map(str, Path("/").glob(place[1:]))) if path.is_absolute() else [place]
        for each in reversed(found):
            try:
                process.run(Command(argv=(each, "--version"), timeout=60.0))
            except OSError:
                continue
            return each
    if tool == "ncu":
        raise UsageError(
            "Nsight Compute (ncu) is not on the PATH, nor in /usr/local/cuda or /opt/nvidia",
            hint="it comes with the CUDA toolkit, and alone as the package nsight-compute of NVIDIA's "
            "repositories; `--tool torch` has times and launches without it",
        )
    note("Nsight Compute (ncu) is not here: torch.profiler has times and launches, no counters")
    return "torch"


def _profile(
    tool: str, start: program.ProfileStart, note: Callable[[str], None], *, may_fall_back: bool
) -> _Seen:
    """Run the program under a tool; where counters are refused, under the other if it may be."""
    with files.staging(files.temporary() / "kernforge-profile") as into:
        start = dataclasses.replace(start, results=str(into))
        if tool != "torch":
            try:
                note(
                    f"profiling with {tool}: each kernel is replayed once for each group of counters"
                )
                return _by_ncu(tool, start, into, note)
            except ncu.CountersRefusedError as error:
                if not may_fall_back:
                    raise MachineError(str(error), hint=error.hint) from error
                note(f"{error}; torch.profiler has times and launches, no counters")
                note(f"hint: {error.hint}")
        note("profiling with torch.profiler")
        return _by_torch(dataclasses.replace(start, counts=False), into)


def _by_ncu(
    tool: str, start: program.ProfileStart, into: Path, note: Callable[[str], None]
) -> _Seen:
    log, without = into / "ncu.csv", frozenset[str]()
    while True:
        done = _run(ncu.arguments(tool, str(log), without), start)
        text = log.read_text(errors="replace") if log.is_file() else ""
        told = f"{text}\n{done.stdout}\n{done.stderr}"
        if without >= (missing := ncu.unknown(told)):
            break
        note(f"this GPU does not count {', '.join(sorted(missing))}")
        without |= missing
    found = ncu.launches(text)
    if not (into / program.RESULT).is_file() and (found or "Traceback" in done.stderr):
        raise _ended(done)
    if not found:
        raise ncu.refusal(told)
    version = process.run(Command(argv=(tool, "--version"), timeout=60.0)).stdout.split("Version ")
    return _Seen(
        tool={
            "name": "ncu",
            "version": version[-1].split(" ")[0].strip(),
            "conditions": "each kernel replayed alone, with flushed caches; clocks as they are",
        },
        launches=found,
        failed=_failed(into),
    )


def _by_torch(start: program.ProfileStart, into: Path) -> _Seen:
    import torch

    done = _run((), start)
    if done.returncode:
        raise _ended(done)
    major, minor = torch.cuda.get_device_capability()
    found = {}
    for number in range(len(start.workloads) * (len(start.candidates) + 1)):
        traces = [into / program.trace_name(number, each) for each in range(program.TRACES)]
        calls = [
            cupti.launches(json.loads(path.read_text()), f"{major}.{minor}")
            for path in traces
            if path.is_file()
        ]
        if calls:
            found[number] = same_calls(calls)
    return _Seen(
        tool={
            "name": "torch.profiler",
            "version": torch.__version__,
            "conditions": "times and launches, no counters; the median of "
            f"{program.TRACES} calls, the L2 cache overwritten before each",
        },
        launches=found,
        failed=_failed(into),
    )


def _run(prefix: tuple[str, ...], start: program.ProfileStart) -> process.Completed:
    argv = (*prefix, sys.executable, "-m", _MODULE, messages.encode(start))
    return process.run(Command(argv=argv, timeout=_LONGEST_S))


def _failed(into: Path) -> dict[int, str]:
    failed = json.loads((into / program.RESULT).read_text())["failed"]
    return {int(number): why for number, why in failed.items()}


def _ended(done: process.Completed) -> KernforgeError:
    last = "\n".join((done.stderr or done.stdout).strip().splitlines()[-10:])
    return KernforgeError(
        f"the profiled process ended with code {done.returncode}:\n{last}", hint=_PAGE
    )


def workload_document(
    case: dict[str, Any],
    place: int,
    racing: Sequence[Candidate],
    launches: dict[int, list[KernelLaunch]],
    failed: dict[int, str],
) -> dict[str, Any]:
    """A workload's part of the document.

    Args:
        case: its part of the benchmark's document.
        launches: the launches of each call, by number.
        failed: why a call could not be made, by number.
    """
    copies = launches.get(program.number_of(place, -1, len(racing)), [])
    copy_rate = copies[-1].dram_bytes_per_s if copies else None
    roof = roofline(case["ceilings"]["cold"]) | {"copy_dram_bytes_per_s": copy_rate}
    profiles = []
    for number, candidate in enumerate(racing):
        call = program.number_of(place, number, len(racing))
        row = next(r for r in case["results"] if r["candidate"] == candidate.name)
        profiles.append(profile_document(row, roof, launches.get(call, []), failed.get(call, "")))
    kept = {name: case[name] for name in ("name", "shapes", "dtypes")}
    return kept | {"roofline": roof, "profiles": profiles}


def roofline(ceilings: dict[str, Any]) -> dict[str, Any]:
    """What a workload must do, and what the machine could reach at it."""
    moved, flops = ceilings["bytes"], ceilings["flops"]
    copy_rate = moved / ceilings["copy_ns"] * 1e9
    rate = ceilings["flops_per_s"] or None
    return {
        "bytes": moved,
        "flops": flops,
        "intensity": flops / moved if moved else None,
        "ridge": rate / copy_rate if rate else None,
        "copy_bytes_per_s": copy_rate,
        "product_flops_per_s": rate,
        "roof_ns": ceilings["roof_ns"],
        "bound": ceilings["bound"],
    }


_TIMES = ("median_ns", "low_ns", "high_ns", "bytes_per_s", "flops_per_s", "share_of_roof")


def profile_document(
    row: dict[str, Any], roof: dict[str, Any], launches: list[KernelLaunch], failed: str
) -> dict[str, Any]:
    """A candidate's part of a workload: its time, its launches with what binds each, and all of them."""
    total = sum(each.time_ns for each in launches)
    rows = []
    for each in launches:
        bound = limit.of_launch(each, roof["copy_dram_bytes_per_s"])
        shown = {
            "name": shortened(each.kernel),
            "share": each.time_ns / total if total else 0.0,
            "limit": dataclasses.asdict(bound),
        }
        rows.append(shown | document(each))
    counted = [
        e.dram_read + e.dram_written
        for e in launches
        if e.dram_read is not None and e.dram_written is not None
    ]
    return {
        "candidate": row["candidate"],
        "refused": row["refused"] or ("" if row["skipped"] else failed),
        "skipped": row["skipped"],
        **{name: row[name] for name in _TIMES if name in row},
        "kernels_ns": total,
        "span_ns": span_ns(launches),
        "dram_bytes": sum(counted) if counted else None,
        "launches": rows,
    }


def refusals(document: dict[str, Any]) -> list[str]:
    """Candidates that were refused or could not be profiled, with the reason."""
    return [
        f"{work['name']}, {profile['candidate']}: {profile['refused']}"
        for work in document["workloads"]
        for profile in work["profiles"]
        if profile["refused"]
    ]

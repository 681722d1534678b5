# SPDX-License-Identifier: Apache-2.0
"""Nsight Compute: the command that profiles a program, and what its raw page says.

Sources: NVIDIA, Nsight Compute CLI, "Command Line Options" and "Output Pages". With ``--csv --page
raw`` a row is a launch, a column a metric, and the second row has the units.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Collection, Iterator, Mapping

from kernforge.bench.profiler import counters
from kernforge.bench.profiler.launches import Dimensions, KernelLaunch

PLACES = ("ncu", "/usr/local/cuda/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
"""Where the program is looked for: on the PATH, then where NVIDIA's packages install it."""
RANGE = "kernforge:"
"""Beginning of the name of an NVTX range; the number of the call follows."""

_RANGE = re.compile(re.escape(RANGE) + r"(\d+)")
_UNKNOWN = re.compile(r"Failed to find metric (?:regex:\^?)?(\w+)")
_FACTORS = {"%": 0.01} | {
    prefix + unit: factor
    for units, factors in (
        (("second", "s"), {"n": 1.0, "u": 1e3, "m": 1e6, "": 1e9}),  # in nanoseconds
        (("byte", "hz"), {"": 1.0, "k": 1e3, "m": 1e6, "g": 1e9}),
    )
    for unit in units
    for prefix, factor in factors.items()
}
_WHOLE = ("registers", "cluster")
_NOT_OURS = {
    *("shared_static", "shared_dynamic", "shared_wavefronts", "shared_conflicts"),
    *("local_read", "local_written", *counters.LIMITS),
}


class CountersRefusedError(Exception):
    """The tool ran and counted nothing; the message says why, ``hint`` what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def arguments(ncu: str, log: str, without: Collection[str] = ()) -> tuple[str, ...]:
    """The command before the program to profile; what is counted is written to ``log``.

    Kernels are replayed one by one, because there are more counters than fit into one pass, each time
    with flushed caches. The clocks stay as they are. Only what the program encloses in
    ``cudaProfilerStart`` and ``cudaProfilerStop`` is counted.

    Args:
        ncu: the program.
        log: the file that it writes to.
        without: metrics that this GPU does not have, without what follows the first dot.
    """
    asked = [each for each in counters.metrics() if each.partition(".")[0] not in without]
    return (
        *(ncu, "--target-processes", "application-only", "--replay-mode", "kernel"),
        *("--cache-control", "all", "--clock-control", "none"),
        *("--profile-from-start", "off", "--nvtx"),
        *("--csv", "--page", "raw", "--print-units", "base", "--log-file", log),
        *("--metrics", ",".join(asked)),
    )


def unknown(told: str) -> frozenset[str]:
    """Metrics that this GPU does not have, by what the tool wrote and printed.

    It ends with the first of them and counts nothing then: GPUs differ, by wgmma's stalls for example.
    """
    return frozenset(_UNKNOWN.findall(told))


def refusal(told: str) -> CountersRefusedError:
    """Why nothing was counted, by what the tool wrote and printed."""
    if "ERR_NVGPUCTRPERM" in told:
        return CountersRefusedError(
            "this user may not read the GPU's performance counters (ERR_NVGPUCTRPERM)",
            "an administrator allows it: `options nvidia NVreg_RestrictProfilingToAdminUsers=0` in a "
            "file of /etc/modprobe.d and a reboot, or CAP_SYS_ADMIN for the container; "
            "`--tool torch` needs no permission and has times without counters",
        )
    lines = [line.partition("== ")[2] for line in told.splitlines() if line.startswith("==ERROR")]
    return CountersRefusedError(
        f"Nsight Compute counted nothing: {'; '.join(lines[:3]) or 'it saw no kernel'}",
        "`--tool torch` has times without counters",
    )


def launches(log: str) -> dict[int, list[KernelLaunch]]:
    """The launches of each call, by its number in the program's NVTX ranges.

    Args:
        log: what the tool wrote: lines that begin with ``==``, and the raw page.

    Returns:
        Nothing where there is no raw page, or it has no launch: ``refusal`` says why.
    """
    found: dict[int, list[KernelLaunch]] = {}
    for row, units in _rows(log):
        found.setdefault(_number_of_call(row), []).append(_launch(row, units))
    return found


def _rows(log: str) -> Iterator[tuple[Mapping[str, str], Mapping[str, str]]]:
    lines = [line for line in log.splitlines() if not line.startswith("==")]
    first = next((at for at, line in enumerate(lines) if line.startswith('"ID"')), None)
    if first is None:
        return
    read = csv.DictReader(io.StringIO("\n".join(lines[first:])))
    units = next(read, None)
    for row in read:
        yield row, units or {}


def _number_of_call(row: Mapping[str, str]) -> int:
    for cell in row.values():
        if named := _RANGE.search(str(cell)):  # a list where the row is too long
            return int(named[1])
    return 0


def _launch(row: Mapping[str, str], units: Mapping[str, str]) -> KernelLaunch:
    values = {
        field: _value(row.get(metric), units.get(metric, ""))
        for field, metric in counters.COUNTERS.items()
    }
    stalls = {
        reason: count
        for reason in counters.STALLS
        if (count := _value(row.get(counters.stall_metric(reason)), ""))
    }
    own = {name: value for name, value in values.items() if name not in (*_WHOLE, *_NOT_OURS)}
    return KernelLaunch(
        kernel=row.get("Kernel Name", ""),
        grid=_dimensions(row.get("Grid Size", "")),
        block=_dimensions(row.get("Block Size", "")),
        shared_bytes=_whole_sum(values, "shared_static", "shared_dynamic"),
        limits=_limits(values),
        stalls=dict(sorted(stalls.items(), key=lambda each: -each[1])),
        conflicts=_ratio(values["shared_conflicts"], values["shared_wavefronts"]),
        local_sectors=_whole_sum(values, "local_read", "local_written"),
        time_ns=own.pop("time_ns") or 0.0,
        registers=_whole_sum(values, "registers"),
        cluster=_whole_sum(values, "cluster"),
        **own,  # the rest of the table are shares, rates and counts
    )


def _value(cell: str | None, unit: str) -> float | None:
    """A cell as a number in base units, a percentage as a share; None where there is no number."""
    try:
        number = float((cell or "").replace(",", ""))
    except ValueError:
        return None
    return number * _FACTORS.get(unit.partition("/")[0].lower(), 1.0)


def _dimensions(cell: str) -> Dimensions | None:
    numbers = [int(each) for each in re.findall(r"\d+", cell)]
    return (numbers[0], numbers[1], numbers[2]) if len(numbers) == 3 else None  # noqa: PLR2004


def _whole_sum(values: Mapping[str, float | None], *names: str) -> int | None:
    known = [value for name in names if (value := values[name]) is not None]
    return round(sum(known)) if known else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _limits(values: Mapping[str, float | None]) -> tuple[str, ...]:
    """What allows no more resident blocks; a limit that is 0 or not there limits nothing."""
    known = {n: value for field, n in counters.LIMITS.items() if (value := values[field])}
    least = min(known.values(), default=0.0)
    return tuple(name for name, value in known.items() if value == least)

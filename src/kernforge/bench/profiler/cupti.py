# SPDX-License-Identifier: Apache-2.0
"""The trace of torch.profiler, which asks CUPTI: times and launches, and no counter.

Its form is Chrome's trace event format; the arguments of a kernel are those that Kineto writes
(pytorch/kineto, ``libkineto/src/CuptiActivity.cpp``): grid, block, registers per thread, shared memory.
"""

from __future__ import annotations

from typing import Any

from kernforge.bench.profiler.launches import Dimensions, KernelLaunch
from kernforge.binary import occupancy

_KERNEL, _COPIES = "kernel", ("gpu_memcpy", "gpu_memset")
_NS = 1e3  # Its times are microseconds.


def launches(trace: dict[str, Any], arch: str) -> list[KernelLaunch]:
    """The kernels, copies and fills of a trace, in the order of their starts.

    Args:
        trace: what ``export_chrome_trace`` wrote.
        arch: compute capability of the GPU, such as ``9.0``.
    """
    events = [e for e in trace.get("traceEvents", ()) if e.get("cat") in (_KERNEL, *_COPIES)]
    return [_launch(each, arch) for each in sorted(events, key=lambda event: event["ts"])]


def _launch(event: dict[str, Any], arch: str) -> KernelLaunch:
    plain = KernelLaunch(
        kernel=event["name"], time_ns=event["dur"] * _NS, start_ns=event["ts"] * _NS
    )
    given = event.get("args", {})
    grid, block = _dimensions(given.get("grid")), _dimensions(given.get("block"))
    registers, shared = given.get("registers per thread"), given.get("shared memory")
    if event["cat"] != _KERNEL or grid is None or block is None or registers is None:
        return plain
    resident = _resident(arch, block, registers, shared or 0)
    return KernelLaunch(
        kernel=plain.kernel,
        time_ns=plain.time_ns,
        start_ns=plain.start_ns,
        grid=grid,
        block=block,
        registers=registers,
        shared_bytes=shared,
        warps_possible=resident.share if resident else None,
        limits=resident.limits if resident else (),
    )


def _resident(
    arch: str, block: Dimensions, registers: int, shared: int
) -> occupancy.Occupancy | None:
    sm = occupancy.limits(arch)
    if sm is None:
        return None
    threads = block[0] * block[1] * block[2]
    return occupancy.occupancy(sm, threads=threads, registers=registers, shared=shared)


def _dimensions(given: Any) -> Dimensions | None:
    known = isinstance(given, list) and len(given) == 3  # noqa: PLR2004
    return (int(given[0]), int(given[1]), int(given[2])) if known else None

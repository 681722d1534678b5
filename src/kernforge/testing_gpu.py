# SPDX-License-Identifier: Apache-2.0
"""Checks that need a GPU: capture, streams, a second device, compute-sanitizer."""

from __future__ import annotations

import math
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kernforge import testing_case as cases
from kernforge.run import Command, run

if TYPE_CHECKING:
    from collections.abc import Callable

    from kernforge.testing_case import Declared
    from kernforge.testing_cases import Draw

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""What compute-sanitizer can look for."""
SANITIZED = ("test_values", "test_views")
"""The checks that run under it."""
FOUND = 86
"""Its exit status when it found something; pytest's own are smaller."""
_WAIT_CYCLES = 100_000_000
_SANITIZER_S = 3000


def need() -> None:
    """Skip, visibly, without a GPU."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")


def need_second_device() -> None:
    """Skip, visibly, with a single GPU."""
    import torch  # noqa: PLC0415

    if (count := torch.cuda.device_count()) < 2:  # noqa: PLR2004
        pytest.skip(f"needs 2 GPUs, {count} here")


def need_memory(declared: Declared, device: str) -> None:
    """Skip, visibly, where the largest case does not fit; the message says how much it needs."""
    import torch  # noqa: PLC0415

    width = getattr(torch, declared.dtypes[0]).itemsize
    # Arguments, their copies and results; without elementwise the reference in float64 as well.
    need = math.prod(declared.large or ()) * (8 * width if declared.elementwise else 80)
    free = torch.cuda.mem_get_info()[0] if device == "cuda" else _available()
    if free < need:
        pytest.skip(f"needs {need / 1e9:.0f} GB on {device}, {free / 1e9:.0f} GB are free")


def _available() -> int:
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0


def assert_graph(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Capture a call, change its arguments, replay it."""
    import torch  # noqa: PLC0415

    case = cases.Case.make(declared, draw, shape)
    fresh = cases.Case.make(declared, _other(draw), shape)
    with torch.cuda.stream(torch.cuda.Stream()):
        op(*cases.converted(case.args, draw.dtype))  # what is made once is made before the capture
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        returned = op(*case.args)
    for old, new in zip(case.args, fresh.before, strict=True):
        if cases.is_tensor(old):
            old.copy_(new)
    graph.replay()
    torch.cuda.synchronize()
    replayed = cases.Case(args=case.args, before=fresh.before, written=case.written)
    cases.assert_case(declared, replayed, returned)


def assert_side_stream(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Arguments arrive late on another stream; a launch elsewhere reads them too early."""
    import torch  # noqa: PLC0415

    case = cases.Case.make(declared, draw, shape)
    fresh = cases.Case.make(declared, _other(draw), shape)
    op(*cases.converted(case.args, draw.dtype))
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(_WAIT_CYCLES)  # noqa: SLF001 - torch has no public way to wait on a GPU
        for old, new in zip(case.args, fresh.before, strict=True):
            if cases.is_tensor(old):
                old.copy_(new)
        returned = op(*case.args)
    torch.cuda.synchronize()
    late = cases.Case(args=case.args, before=fresh.before, written=case.written)
    cases.assert_case(declared, late, returned)


def _other(draw: Draw) -> Draw:
    """The same with other numbers."""
    return replace(draw, seed=draw.seed + 1, written=[])


def sanitizer_argv(tool: str, tests: tuple[str, ...], *, program: str) -> tuple[str, ...]:
    """The command that runs tests under compute-sanitizer."""
    return (
        *(program, "--tool", tool, "--error-exitcode", str(FOUND), "--target-processes", "all"),
        *(sys.executable, "-m", "pytest", "-p", "kernforge.testing_plugin", "-q", "-x"),
        *("-p", "no:cacheprovider", *tests),
    )


def assert_sanitized(tool: str, node: str, root: Path) -> None:
    """Run the checks of values of one operator under compute-sanitizer.

    Every tensor is an allocation of its own there, so that a byte too far is seen.
    """
    program = os.environ.get("KERNFORGE_SANITIZER", "compute-sanitizer")
    of_class = node.rpartition("::")[0]
    argv = sanitizer_argv(tool, tuple(f"{of_class}::{name}" for name in SANITIZED), program=program)
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    try:
        done = run(Command(argv=(*argv, "-k", "cuda"), cwd=root, env=env, timeout=_SANITIZER_S))
    except FileNotFoundError:
        pytest.skip(
            f"{program} is not here: it is in the CUDA toolkit; KERNFORGE_SANITIZER names it"
        )
    if done.returncode == FOUND or "ERROR SUMMARY: 0" not in done.stdout:
        lines = [n for n in done.stdout.splitlines() if n.startswith("=========")]
        raise AssertionError(f"{tool}:\n" + "\n".join(lines[:40] or [done.stdout[-3000:]]))

# SPDX-License-Identifier: Apache-2.0
"""Checks that need a GPU: capture, streams, a second device, compute-sanitizer."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from kernforge.system import files
from kernforge.system.paths import home
from kernforge.system.process import Command, run
from kernforge.testing import case as cases
from kernforge.testing import guards

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kernforge.testing.case import Declared
    from kernforge.testing.inputs import Draw

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
"""What compute-sanitizer can look for."""
SANITIZED = ("test_values", "test_views")
"""The checks that run under it."""
_SANITIZED = "KERNFORGE_SANITIZED"
_SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:errors?|hazards?)")
_WAIT_CYCLES = 100_000_000
_SANITIZER_S = 3000
_SHOWN = 40
_SHOWN_CHARACTERS = 3000


def need() -> None:
    """Skip, visibly, without a GPU."""
    import torch  # noqa: PLC0415 - torch is imported where it is used

    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")


def lost() -> str:
    """What the GPU reports that lasts, as after an illegal address; "" when it works."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    text = ""
    used = [d for d in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(d)]
    for _ in range(2):  # an error that does not last is told once
        try:
            for device in used:
                torch.cuda.synchronize(device)
        except RuntimeError as error:
            text = first_line(error)
        else:
            return ""
    return text


def first_line(error: BaseException) -> str:
    """What an error of torch says, without its advice."""
    return str(error).strip().partition("\n")[0]


def sanitized() -> bool:
    """Whether this process runs under compute-sanitizer.

    It watches each allocation by itself: guards and poison would only hide faults from it.
    """
    return _SANITIZED in os.environ


def need_second_device() -> None:
    """Skip, visibly, with a single GPU."""
    import torch  # noqa: PLC0415

    if (count := torch.cuda.device_count()) < 2:  # noqa: PLR2004
        pytest.skip(f"needs 2 GPUs, {count} here")


def assert_graph(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Capture a call, change its arguments, replay it."""
    import torch  # noqa: PLC0415

    case = cases.Case.make(declared, draw, shape)
    fresh = cases.Case.make(declared, _other(draw), shape)
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        op(*cases.copied(case.args))  # what is made once is made before the capture
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            returned = op(*case.args)
    except RuntimeError as error:
        raise AssertionError(f"it cannot be captured: {_cause(error)}") from error
    finally:
        torch.cuda.set_stream(stream)  # torch stays on the capture's when that fails
    _arrive(case, fresh)
    graph.replay()
    torch.cuda.synchronize()
    replayed = cases.Case(args=case.args, before=fresh.before, written=case.written)
    cases.assert_case(declared, replayed, returned)


def _cause(error: BaseException) -> str:
    """What was refused; the end of the capture, which fails after it, says only that it was."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return first_line(error)


def assert_side_stream(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Call it on another stream than torch's default one; see ``_assert_late``."""
    import torch  # noqa: PLC0415

    with torch.cuda.stream(torch.cuda.Stream()):
        _assert_late(declared, op, draw, shape)


def assert_second_device(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Call it on arguments of a device that is not the current one; see ``_assert_late``."""
    _assert_late(declared, op, draw, shape)


def _assert_late(
    declared: Declared, op: Callable[..., Any], draw: Draw, shape: tuple[int, ...]
) -> None:
    """Arguments arrive late on their device's stream, and results are taken from it at once.

    A launch on another stream reads the arguments too early; one that this stream does not wait for
    gives its results too late, when the memory still holds poison.
    """
    import torch  # noqa: PLC0415

    case = cases.Case.make(declared, draw, shape)
    fresh = cases.Case.make(declared, _other(draw), shape)
    op(*cases.copied(case.args))
    torch.cuda.synchronize(draw.device)
    with torch.cuda.device(draw.device):
        torch.cuda._sleep(_WAIT_CYCLES)  # noqa: SLF001 - torch has no public way to wait on a GPU
    _arrive(case, fresh)
    returned, _ = guards.watched(lambda: op(*case.args), settled=False)
    taken = cases.copied(case.results(returned))
    torch.cuda.synchronize(draw.device)
    cases.assert_results(declared, fresh.before, taken)


def _arrive(case: cases.Case, fresh: cases.Case) -> None:
    """Put another case's values where the arguments of this one are."""
    for old, new in zip(case.args, fresh.before, strict=True):
        if cases.is_tensor(old):
            old.copy_(new)


def _other(draw: Draw) -> Draw:
    """The same with other numbers."""
    return replace(draw, seed=draw.seed + 1)


def sanitizer_argv(
    tool: str, tests: tuple[str, ...], *, program: str, log: Path, options: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The command that runs tests under compute-sanitizer.

    Args:
        tool: one of ``TOOLS``.
        tests: pytest's names of them.
        program: compute-sanitizer.
        log: where it writes; pytest has the standard output.
        options: more for pytest.
    """
    return (
        *(program, "--tool", tool, "--target-processes", "all", "--log-file", str(log)),
        *("--show-backtrace", "device", "--demangle", "simple", "--print-limit", str(_SHOWN)),
        *(sys.executable, "-m", "pytest", "-p", "kernforge.testing.plugin", "-q", "-x"),
        *("-p", "no:cacheprovider", *options, *tests),
    )


def assert_sanitized(tool: str, node: str, config: pytest.Config) -> None:
    """Run the checks of values of one operator under compute-sanitizer.

    Every tensor is an allocation of its own there, so that a byte too far is seen.

    Args:
        tool: one of ``TOOLS``.
        node: pytest's name of a test of that operator.
        config: of this run, which that one repeats.
    """
    program = os.environ.get("KERNFORGE_SANITIZER", "compute-sanitizer")
    root, ini = config.rootpath, config.inipath
    options = ("--rootdir", str(root), "-c", str(ini or os.devnull), "-k", "cuda")
    of_class = node.rpartition("::")[0]
    tests = tuple(f"{of_class}::{name}" for name in SANITIZED)
    env = {**os.environ, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1", _SANITIZED: tool}
    with files.staging(home() / "tests") as scratch:
        log = scratch / "log"
        argv = sanitizer_argv(tool, tests, program=program, log=log, options=options)
        try:
            done = run(Command(argv=argv, cwd=root, env=env, timeout=_SANITIZER_S))
        except FileNotFoundError:
            pytest.skip(
                f"{program} is not here: it is in the CUDA toolkit; KERNFORGE_SANITIZER names it"
            )
        told = log.read_text() if log.exists() else ""
    if "Device not supported" in told:
        pytest.skip(f"{program} does not support this machine's GPU")
    if text := findings(told, done.returncode, done.stdout + done.stderr):
        raise AssertionError(f"{tool}: {text}")


def findings(told: str, status: int, output: str) -> str:
    """What a run under compute-sanitizer found; "" when it ran to its end and found nothing.

    Args:
        told: what compute-sanitizer wrote.
        status: the exit status, which is that of the tests.
        output: theirs.
    """
    counts = [int(count) for count in _SUMMARY.findall(told)]
    if any(counts):
        lines = (line.removeprefix("=========").rstrip() for line in told.splitlines())
        return "\n".join([line for line in lines if line][1 : 1 + _SHOWN])
    if counts and status == 0:
        return ""
    return f"the tests ended with status {status} under it:\n{output[-_SHOWN_CHARACTERS:]}"

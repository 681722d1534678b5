# SPDX-License-Identifier: Apache-2.0
"""Checks that need a GPU: capture, streams, a second device, large inputs, compute-sanitizer."""

from __future__ import annotations

import math
import os
import re
import sys
from dataclasses import replace
from typing import Any

import pytest

from kernforge.compare.results import Difference, assert_shape, difference
from kernforge.compare.tensors import is_tensor
from kernforge.system import files
from kernforge.system.environment import Environment
from kernforge.system.process import Command, run
from kernforge.testing import guards
from kernforge.testing.case import Case, OpDeclaration, Trial, copies

__tracebackhide__ = True  # a failure shows the test and the operator, not how we compare
SANITIZED = ("test_values", "test_views")
"""The checks that run under compute-sanitizer."""
SANITIZED_BY = "KERNFORGE_SANITIZED"
"""Variable with the tool that tests run under."""
_SUMMARY = re.compile(r"(?:ERROR SUMMARY|RACECHECK SUMMARY): (\d+) (?:errors?|hazards?)")
_WAIT_CYCLES = 100_000_000
_SANITIZER_S = 3000
_SHOWN = 40
_SHOWN_CHARACTERS = 3000
PART = 2**26
"""Number of elements of a part of a large result."""
_FLOAT64_COPIES = 16  # of a part, while it is compared
_SHARE = 0.95  # of the free memory


def skip_without_gpu() -> None:
    """Skip a test, with a reason, if there is no GPU."""
    import torch

    if not torch.cuda.is_available():
        pytest.skip("no NVIDIA GPU here")


def lasting_error() -> str:
    """The error that the GPU reports for every call, as after an illegal address; "" if none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return ""
    text = ""
    used = [d for d in range(torch.cuda.device_count()) if torch.cuda.memory_reserved(d)]
    for _ in range(2):  # an error that does not last is reported once
        try:
            for device in used:
                torch.cuda.synchronize(device)
        except RuntimeError as error:
            text = first_line(error)
        else:
            return ""
    return text


def first_line(error: BaseException) -> str:
    """The first line of an error of torch, without its hints."""
    return str(error).strip().partition("\n")[0]


def assert_graph(trial: Trial) -> None:
    """Capture a call, change its arguments, replay it."""
    import torch

    case, new_case = trial.case(), _other(trial).case()
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        trial.op(*copies(case.args))  # its first call may initialise something
    torch.cuda.synchronize()
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    try:
        with torch.cuda.graph(graph):
            returned = trial.op(*case.args)
    except RuntimeError as error:
        raise AssertionError(f"the call cannot be captured: {_cause(error)}") from error
    finally:
        torch.cuda.set_stream(stream)  # torch stays on the capture's stream if the capture fails
    _overwrite(case, new_case)
    graph.replay()
    torch.cuda.synchronize()
    replace(case, before=new_case.before).check(returned)


def _cause(error: BaseException) -> str:
    """The first error of a capture; the error at its end only says that the capture failed."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return first_line(error)


def assert_stream_order(trial: Trial) -> None:
    """Call the operator while the stream still writes its arguments, and read results at once.

    The device of the trial need not be the current one. A launch on another stream reads the
    arguments too early; a launch that this stream does not wait for writes its results too late,
    when the memory still has poison.
    """
    import torch

    device = trial.draw.device
    case, new_case = trial.case(), _other(trial).case()
    trial.op(*copies(case.args))
    torch.cuda.synchronize(device)
    with torch.cuda.device(device):
        torch.cuda._sleep(_WAIT_CYCLES)  # noqa: SLF001 - torch has no public way to wait on a GPU
    _overwrite(case, new_case)
    returned, _ = guards.watched(lambda: trial.op(*case.args), settled=False)
    results = copies(case.results(returned))
    torch.cuda.synchronize(device)
    replace(case, before=new_case.before).compare(results)


def _overwrite(case: Case, new: Case) -> None:
    """Copy the values of another case into the arguments of this case."""
    for old, value in zip(case.args, new.before, strict=True):
        if is_tensor(old):
            old.copy_(value)


def _other(trial: Trial) -> Trial:
    """The same trial with another seed."""
    return trial.drawn(seed=trial.draw.seed + 1)


def skip_without_memory(trial: Trial) -> None:
    """Skip a test, with the needed memory as a reason, if the large case does not fit.

    The memory of the large case is computed from this trial's, which fits, in proportion.
    """
    import torch

    declared = trial.declared
    case = trial.case(keep=False)
    results = case.results(trial.op(*case.args))
    tensors = [a for a in (*case.args, *results) if is_tensor(a)]
    count = math.prod(declared.large or ())
    times = count / max(1, math.prod(trial.shape))
    compared = min(PART, count) if _by_parts(declared) else count
    need = int(times * sum(tensor.nbytes for tensor in tensors)) + compared * 8 * _FLOAT64_COPIES
    torch.cuda.empty_cache()
    free = int(torch.cuda.mem_get_info()[0] * _SHARE)
    if free < need:
        pytest.skip(f"needs {need / 1e9:.0f} GB of the GPU, {free / 1e9:.0f} GB can be used")


def assert_large(trial: Trial) -> None:
    """Compare the results of a call with more than 2^31 elements with the reference's.

    If a part of the results depends only on a part of the inputs, the reference is computed part by
    part on the GPU. Only the first wrong element is copied to the host.
    """
    declared, shape = trial.declared, trial.declared.large or ()
    case = replace(trial, shape=shape).case(keep=False)
    results = case.results(trial.op(*case.args))
    if not _by_parts(declared):
        case.compare(results)
        return
    length = math.prod(shape) if declared.elementwise else shape[0]
    differences: dict[int, Difference] = {}
    step = max(1, PART * length // math.prod(shape))
    for start in range(0, length, step):
        part = slice(start, min(start + step, length))
        before = tuple(_cut(a, part, declared, length) for a in case.before)
        pairs = declared.expected(before)
        for number, (complete, (exact, same)) in enumerate(zip(results, pairs, strict=True)):
            result = _cut(complete, part, declared, length)
            assert_shape(result.shape, exact.shape, what=f"part of result {number}")
            if wrong := difference(result, exact, same, factor=declared.factor):
                at = part.start * (complete.numel() // length)
                differences[number] = wrong.after(differences.get(number), at=at)
    for number, wrong in differences.items():
        raise AssertionError(wrong.text(f"result {number}", results[number].shape))


def _by_parts(declared: OpDeclaration) -> bool:
    return declared.elementwise or declared.rowwise


def _cut(value: Any, part: slice, declared: OpDeclaration, length: int) -> Any:
    """The part of a tensor that has the full length; other values are not changed."""
    if not is_tensor(value):
        return value
    if declared.elementwise:
        return value.reshape(-1)[part] if value.numel() == length else value
    return value[part] if value.shape[:1] == (length,) else value


def assert_sanitized(tool: str, node: str, config: pytest.Config, environment: Environment) -> None:
    """Run the checks of values of one operator under compute-sanitizer.

    Every tensor is a separate allocation there, so that an access of one byte too many is found.

    Args:
        config: configuration of this run of pytest, which the other run takes over.
    """
    root, of_class = config.rootpath, node.rpartition("::")[0]
    added = {"PYTORCH_NO_CUDA_MEMORY_CACHING": "1", SANITIZED_BY: tool}
    with files.staging(environment.home / "tests") as scratch:
        log = scratch / "log"
        argv = ["compute-sanitizer", "--tool", tool, "--target-processes", "all"]
        # A file for its output, for the standard output is pytest's.
        argv += ["--log-file", str(log), "--show-backtrace", "device", "--demangle", "simple"]
        argv += ["--print-limit", str(_SHOWN), sys.executable, "-m", "pytest", "-q", "-x"]
        argv += ["-p", "kernforge.testing.plugin", "-p", "no:cacheprovider"]
        argv += ["--rootdir", str(root), "-c", str(config.inipath or os.devnull), "-k", "cuda"]
        argv += [f"{of_class}::{name}" for name in SANITIZED]
        try:
            done = run(Command(argv=tuple(argv), cwd=root, added=added, timeout=_SANITIZER_S))
        except FileNotFoundError:
            pytest.skip(
                "compute-sanitizer was not found: install the CUDA toolkit, and add its bin to PATH"
            )
        log_text = log.read_text() if log.exists() else ""
    if "Device not supported" in log_text:
        pytest.skip("compute-sanitizer does not support this machine's GPU")
    if text := findings(log_text, done.returncode, done.stdout + done.stderr):
        raise AssertionError(f"{tool}: {text}")


def findings(log: str, status: int, output: str) -> str:
    """Findings of a run under compute-sanitizer; "" without any and with status 0."""
    counts = [int(count) for count in _SUMMARY.findall(log)]
    if any(counts):
        lines = (line.removeprefix("=========").rstrip() for line in log.splitlines())
        return "\n".join([line for line in lines if line][1 : 1 + _SHOWN])
    if counts and status == 0:
        return ""
    return f"the tests ended with status {status}:\n{output[-_SHOWN_CHARACTERS:]}"

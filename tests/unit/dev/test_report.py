# SPDX-License-Identifier: Apache-2.0
"""A round as JSON, as text, and on a terminal."""

import io

import pytest
from rich.console import Console as Terminal

from kernforge.binary import kernel_usage
from kernforge.binary.cubin import FunctionUsage
from kernforge.dev.report import View, text
from kernforge.dev.rounds import EVERYTHING, GoodBuild, Round
from kernforge.source.diagnostics import Diagnostic
from kernforge.system.console import Console
from kernforge.testing import project_tests


@pytest.fixture
def broken():
    """A round whose build failed."""
    error = Diagnostic(file="k.cu", line=2, column=3, severity="error", message='"z" is undefined')
    return Round(
        number=2,
        files=("k.cu",),
        work=EVERYTHING,
        diagnostics=((error, ("> 2 | z", "    | ^")),),
        output=(("k.cu, CUDA 13.0", "k.cu(2): error"),),
        seconds={"build": 1.5},
        exit_code=5,
    )


@pytest.fixture
def tested():
    """A round with a failed test, a kernel and a time."""
    sizes = {"registers": 64, "stack": 16, "spill_stores": 8, "spill_loads": 12, "shared": 1024}
    use = FunctionUsage(symbol="_Z1kPf", kernel=True, barriers=1, threads=256, required=0, **sizes)
    limits = kernel_usage.limits_of("9.0")
    fills = (kernel_usage.occupancy(limits, threads=256, registers=64, shared=1024, barriers=1),)
    tests = (
        {"test": "tests/test_a.py::test_x", "outcome": "passed", "reason": ""},
        {"test": "tests/test_a.py::test_y", "outcome": "failed", "reason": "1 != 2"},
    )
    time = {"workload": "w", "mode": "cold", "median_ns": 1500.0}
    return Round(
        number=1,
        files=(),
        work=EVERYTHING,
        tested=(project_tests.Tested(variant="v", tests=tests, output="", wall_s=1.0),),
        kernels=(kernel_usage.Kernel(name="k(float*)", arch="9.0", use=use, fills=fills),),
        times=(time | {"ratio": {"value": 1.5, "low": 1.3, "high": 1.7}},),
        exit_code=6,
    )


def test_a_terminal_shows_errors_tests_kernels_and_times(broken, tested):
    terminal = Terminal(file=io.StringIO(), width=160, force_terminal=True, color_system=None)
    with View(Console(), terminal) as view:
        view.state("compiling", "k.cu, CUDA 13.0")
        view.round(broken, GoodBuild(round=1, variants={}))
        view.round(tested, None)
        view.state("idle", "")
    shown = terminal.file.getvalue()
    for words in (
        *("compiling k.cu, CUDA 13.0", 'k.cu:2:3: error: "z" is undefined', "> 2 | z"),
        *("the last good build stays", "1 passed, 1 failed", "failed: tests/test_a.py::test_y"),
        *("8 B out, 12 B in", "256: 50% (registers)", "1.500", "from 1.300 to 1.700"),
        *("a short run", "waiting for a change"),
    ):
        assert words in shown, words


def test_a_round_without_a_gpu_says_what_was_not_compiled():
    result = Round(number=1, files=(), work=EVERYTHING, uncompiled={"cuda": ("k.cu",)})
    shown = text(result, None)
    assert "not compiled for cuda: k.cu, " in shown
    assert "good, not compiled for cuda: " in shown

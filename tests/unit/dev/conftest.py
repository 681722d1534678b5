# SPDX-License-Identifier: Apache-2.0
"""Rounds that several tests show."""

import pytest

from kernforge.binary import kernel_usage, occupancy
from kernforge.binary.cubin import FunctionUsage
from kernforge.dev import rounds
from kernforge.dev.rounds import EVERYTHING, Round
from kernforge.source.diagnostics import Diagnostic
from kernforge.testing import project_tests


@pytest.fixture
def broken():
    said = Diagnostic(file="k.cu", line=2, column=3, severity="error", message='"z" is undefined')
    return Round(
        number=2,
        files=("k.cu",),
        work=rounds.work(("k.cu",), built=True),
        diagnostics=((said, ("> 2 | z", "    | ^")),),
        output=(("k.cu, CUDA 13.0", "k.cu(2): error"),),
        seconds={"build": 1.5},
        exit_code=5,
    )


@pytest.fixture
def good():
    use = FunctionUsage(
        symbol="_Z1kPf",
        kernel=True,
        registers=64,
        stack=16,
        spill_stores=8,
        spill_loads=12,
        shared=1024,
        barriers=1,
        threads=256,
        required=0,
    )
    limits = occupancy.limits("9.0")
    fills = (occupancy.occupancy(limits, threads=256, registers=64, shared=1024, barriers=1),)
    tests = (
        {"test": "tests/test_a.py::test_x", "outcome": "passed", "reason": ""},
        {"test": "tests/test_a.py::test_y", "outcome": "failed", "reason": "1 != 2"},
    )
    return Round(
        number=1,
        files=(),
        work=EVERYTHING,
        tested=(project_tests.Tested(variant="v", tests=tests, output="", wall_s=1.0),),
        kernels=(kernel_usage.Kernel(name="k(float*)", arch="9.0", use=use, fills=fills),),
        times=(
            {
                "workload": "w",
                "mode": "cold",
                "median_ns": 1500.0,
                "ratio": 1.5,
                "low": 1.3,
                "high": 1.7,
                "refused": "",
            },
        ),
        exit_code=6,
    )

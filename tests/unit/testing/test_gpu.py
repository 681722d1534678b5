# SPDX-License-Identifier: Apache-2.0
"""How a run under compute-sanitizer is started and read. Its words are those of version 2025.3."""

from pathlib import Path

import pytest

from kernforge.testing.gpu import findings, sanitizer_argv

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at relu_kernel+0x510
========= ERROR SUMMARY: 1 error
"""
RACES = (
    "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: {} hazards displayed (0 errors)\n"
)


@pytest.mark.parametrize("told", [CLEAN, RACES.format(0)])
def test_a_run_to_the_end_that_found_nothing_is_clean(told):
    assert not findings(told, 0, "9 passed")


def test_what_is_found_is_reported_without_decoration():
    assert findings(FOUND, 1, "1 failed").splitlines()[0] == (
        " Invalid __global__ write of size 4 bytes"
    )
    assert "3 hazards" in findings(RACES.format(3), 0, "9 passed")


@pytest.mark.parametrize(("told", "status"), [(CLEAN, 1), ("", 0), ("", -9)])
def test_a_run_that_proves_nothing_is_not_clean(told, status):
    assert f"status {status}" in findings(told, status, "the tests' own words")


def test_the_tests_run_below_the_tool_and_it_writes_apart_from_them():
    argv = sanitizer_argv("racecheck", ("t.py::TestIt",), program="cs", log=Path("/log"))
    assert argv[:3] == ("cs", "--tool", "racecheck")
    assert argv[argv.index("--log-file") + 1] == "/log"
    assert argv[-1] == "t.py::TestIt"

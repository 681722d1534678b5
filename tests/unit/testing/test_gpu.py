# SPDX-License-Identifier: Apache-2.0
"""Runs under compute-sanitizer, with the output of version 2025.3."""

import pytest

from kernforge.testing.gpu import findings

CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
FOUND = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at relu_kernel+0x510
========= ERROR SUMMARY: 1 error
"""
RACES = (
    "========= COMPUTE-SANITIZER\n========= RACECHECK SUMMARY: {} hazards displayed (0 errors)\n"
)


@pytest.mark.parametrize("log", [CLEAN, RACES.format(0)])
def test_a_complete_run_without_errors_is_clean(log):
    assert not findings(log, 0, "9 passed")


def test_findings_are_reported_without_decoration():
    assert findings(FOUND, 1, "1 failed").splitlines()[0] == (
        " Invalid __global__ write of size 4 bytes"
    )
    assert "3 hazards" in findings(RACES.format(3), 0, "9 passed")


@pytest.mark.parametrize(("log", "status"), [(CLEAN, 1), ("", 0), ("", -9)])
def test_an_incomplete_run_is_not_clean(log, status):
    assert f"status {status}" in findings(log, status, "the tests' own words")

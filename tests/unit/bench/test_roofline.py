# SPDX-License-Identifier: Apache-2.0
"""Floors below which no time can be, and which ceiling is the roof."""

import pytest

from kernforge.bench import roofline


@pytest.mark.parametrize(
    ("median_ns", "moved", "device", "right"),
    [
        (90_000, 1 << 29, "cuda", True),
        (70_000, 1 << 29, "cuda", False),
        (40_000, 1 << 20, "cuda", True),
        (40_000, 1 << 29, "cpu", True),
        (30_000, 1 << 29, "cpu", False),
    ],
)
def test_times_below_the_floor_are_refused(median_ns, moved, device, right):
    top = roofline.ceiling(moved=moved, flops=0, copies=[100_000.0, 120_000.0], products=(), side=1)
    assert (roofline.below_floor(median_ns, top, device) == "") is right


def test_arithmetic_can_be_the_roof():
    top = roofline.ceiling(moved=1, flops=4000, copies=[10.0], products=[1000.0], side=10)
    assert (top.bound, top.roof_ns) == ("arithmetic", 2000.0)

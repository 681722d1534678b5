# SPDX-License-Identifier: Apache-2.0
"""What binds a launch, by its counters."""

import pytest

from kernforge.bench.profiler import limit
from kernforge.bench.profiler.launches import KernelLaunch


def launch(**counted):
    return KernelLaunch(kernel="k", time_ns=10_000.0, **counted)


@pytest.mark.parametrize(
    ("counted", "by"),
    [
        ({"tensor": 0.85, "issue": 0.3, "dram": 0.4}, "tensor"),
        ({"dram": 0.9, "l2": 0.7}, "memory"),
        ({"l2": 0.81, "dram": 0.5}, "l2"),
        ({"issue": 0.95, "alu": 0.9}, "issue"),
        ({"fp64": 0.99, "issue": 0.2}, "fp64"),
        ({"tensor": 0.65, "issue": 0.3}, "tensor"),
        ({"tensor": 0.59, "issue": 0.3}, "waiting"),
        ({"dram": 0.1, "busy": 0.2}, "grid"),
        ({"tensor": 0.85, "busy": 0.7}, "grid"),
        ({"dram": 0.85, "busy": 0.7}, "memory"),
        ({"dram": 0.1, "busy": 0.99}, "waiting"),
        ({}, "not counted"),
    ],
)
def test_the_unit_that_is_used_most_binds_if_it_is_used_enough(counted, by):
    assert limit.of_launch(launch(**counted), None).by == by


def test_dram_is_compared_with_the_copy_under_the_same_tool():
    moved = {"dram_read": 20e6, "dram_written": 10e6, "dram": 0.6}  # 3 TB/s
    copied = limit.of_launch(launch(**moved), 3.2e12)
    assert (copied.by, round(copied.used, 2)) == ("memory", 0.94)
    assert copied.sentence == "DRAM at 3000 GB/s is the limit: 94% of the copy; it waits"
    full = limit.of_launch(launch(**moved), 3.0e12)
    assert full.sentence == "DRAM at 3000 GB/s is the limit: 100% of the copy"
    alone = limit.of_launch(launch(**moved), None)
    assert alone.sentence == "DRAM is used most: 60% of its peak; it waits"


def test_a_launch_that_waits_says_for_what_and_with_how_many_warps():
    found = limit.of_launch(
        launch(
            issue=0.4,
            cycles=9.1,
            stalls={"long_scoreboard": 4.12, "barrier": 1.5, "wait": 1.2, "drain": 0.01},
            warps_active=0.31,
            warps_possible=0.5,
            limits=("registers",),
        ),
        None,
    )
    assert found.by == "waiting"
    assert found.sentence == (
        "a warp issues every 9.1 cycles: 4.1 of them it waits for data of global or local memory, 1.5 "
        "for a barrier of the block; 31% of the warps are resident (50% possible, limited by registers); "
        "the issue of instructions is used most: 40% of its peak"
    )


def test_a_grid_that_leaves_multiprocessors_without_work_is_named():
    found = limit.of_launch(launch(issue=0.5, busy=0.6, waves=1.2, grid=(30, 10, 1)), None)
    assert found.sentence == (
        "multiprocessors have no work for 40% of the time; the grid has 300 blocks, 1.2 of what is "
        "resident at once; the issue of instructions is used most: 50% of its peak"
    )

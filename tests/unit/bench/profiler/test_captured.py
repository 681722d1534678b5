# SPDX-License-Identifier: Apache-2.0
"""What both tools said on an H200 of kernels whose faults are known.

``tests/data/profiles`` has what Nsight Compute 2025.3.1 and torch.profiler of torch 2.11 wrote there
on 2026-11-23; metrics that are not asked for and other events are cut. ``conflicts`` has all threads
of a warp in one bank of shared memory, ``fmas`` does four chains of multiply-add in registers, and
``spill`` has 64 values of each thread in 32 registers.
"""

import json
from pathlib import Path

import pytest

from kernforge.bench.profiler import counters, cupti, limit, ncu
from kernforge.bench.profiler.names import shortened

DATA = Path(__file__).parents[3] / "data" / "profiles"


@pytest.fixture(scope="module")
def counted():
    launches = ncu.launches((DATA / "ncu-h200.csv").read_text())[0]
    return {
        shortened(each.kernel).partition("<")[0].partition("_tst")[0]: each for each in launches
    }


@pytest.fixture(scope="module")
def copy_rate(counted):
    return counted["vectorized_elementwise_kernel"].dram_bytes_per_s


def test_a_hopper_gpu_has_every_counter_but_stalls_that_did_not_occur(counted):
    for launch in counted.values():
        left_out = [name for name in launch.__slots__ if getattr(launch, name) is None]
        assert left_out == ["start_ns"]
        assert launch.stalls.keys() < counters.STALLS.keys()
        assert sum(launch.stalls.values()) < launch.cycles


def test_the_copy_moves_half_a_write_less_than_it_does(counted, copy_rate):
    copy = counted["vectorized_elementwise_kernel"]
    assert copy.dram_read == pytest.approx(64 << 20, rel=0.01)
    assert copy.dram_written < 64 << 20  # the rest is in the L2 cache when it ends
    assert 3e12 < copy_rate < 4.8e12
    assert limit.of_launch(copy, copy_rate).used == pytest.approx(1.0)


def test_the_faults_are_found(counted, copy_rate):
    bound = {name: limit.of_launch(each, copy_rate) for name, each in counted.items()}
    assert counted["conflicts"].conflicts > 0.95
    assert bound["conflicts"].by == "l1"
    assert counted["fmas"].fma > 0.9
    assert bound["fmas"].by == "issue"
    assert counted["spill"].local_sectors * 32 > 1 << 29
    assert counted["spill"].registers == 32
    assert counted["conflicts"].local_sectors == 0
    assert bound["nvjet_sm90"].by == "tensor"
    assert counted["nvjet_sm90"].limits == ("registers", "shared memory")
    assert limit.top_stalls(counted["spill"])[0][0] == "long_scoreboard"


def test_both_tools_see_the_same_launch(counted):
    trace = json.loads((DATA / "torch-profiler-h200.json").read_text())
    seen = {shortened(each.kernel): each for each in cupti.launches(trace, "9.0")}
    theirs, ours = counted["spill"], seen["spill"]
    assert (ours.grid, ours.block, ours.registers) == (theirs.grid, theirs.block, theirs.registers)
    assert ours.warps_possible == theirs.warps_possible == 1.0
    assert ours.time_ns == pytest.approx(theirs.time_ns, rel=0.05)
    product = next(each for name, each in seen.items() if name.startswith("nvjet"))
    assert product.shared_bytes == counted["nvjet_sm90"].shared_bytes
    assert product.warps_possible == pytest.approx(counted["nvjet_sm90"].warps_possible, abs=0.001)
    assert product.limits == counted["nvjet_sm90"].limits

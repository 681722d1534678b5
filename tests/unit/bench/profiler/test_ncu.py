# SPDX-License-Identifier: Apache-2.0
"""The command for Nsight Compute, and what its raw page says."""

import csv
import io

import pytest

from kernforge.bench.profiler import counters, ncu

HEAD = ("ID", "Kernel Name", "Block Size", "Grid Size", "thread Domain:Push/Pop_Range")


def page(*rows, units=None):
    """A raw page with some metrics; the others are columns without a number."""
    units = units or {}
    names = list(counters.metrics())
    text = io.StringIO()
    text.write(
        '==PROF== Connected to process 2316\n==PROF== Profiling "f": 0%....100% - 9 passes\n'
    )
    to = csv.writer(text, quoting=csv.QUOTE_ALL)
    to.writerow([*HEAD, *names])
    to.writerow([*("" for _ in HEAD), *(units.get(name, "") for name in names)])
    for number, call, values in rows:
        metrics = {counters.COUNTERS.get(field, field): text for field, text in values.items()}
        place = f"<default domain>:{ncu.RANGE}{call}:none:none"
        to.writerow(
            [number, "void f<(int)4>(float *)", "(128, 1, 1)", "(64, 2, 1)", place]
            + [metrics.get(name, "n/a") for name in names]
        )
    text.write("==WARNING== Note\n")
    return text.getvalue()


def test_launches_belong_to_the_calls_that_made_them():
    found = ncu.launches(page((0, 3, {}), (1, 3, {}), (2, 12, {})))
    assert {call: len(launches) for call, launches in found.items()} == {3: 2, 12: 1}
    launch = found[12][0]
    assert (launch.grid, launch.block) == ((64, 2, 1), (128, 1, 1))
    assert launch.kernel == "void f<(int)4>(float *)"


def test_what_has_no_number_is_not_counted():
    (launch,) = ncu.launches(page((0, 0, {"time_ns": "1,250"})))[0]
    assert launch.time_ns == 1250.0
    assert (launch.dram_read, launch.tensor, launch.registers, launch.shared_bytes) == (None,) * 4
    assert (launch.stalls, launch.limits) == ({}, ())


def test_units_are_those_of_the_page():
    units = {
        "gpu__time_duration.sum": "us",
        "dram__bytes_read.sum": "Mbyte",
        "dram__throughput.avg.pct_of_peak_sustained_elapsed": "%",
        "launch__registers_per_thread": "register/thread",
        "launch__shared_mem_per_block_static": "byte/block",
        "launch__shared_mem_per_block_dynamic": "Kbyte/block",
        "sm__cycles_elapsed.avg.per_second": "Ghz",
    }
    values = {
        "time_ns": "37.7",
        "dram_read": "67.15",
        "dram": "60.45",
        "registers": "47",
        "shared_static": "96",
        "shared_dynamic": "32",
        "sm_hz": "1.95",
    }
    (launch,) = ncu.launches(page((0, 0, values), units=units))[0]
    assert launch.time_ns == pytest.approx(37_700)
    assert launch.dram_read == pytest.approx(67.15e6)
    assert launch.dram == pytest.approx(0.6045)
    assert (launch.registers, launch.shared_bytes) == (47, 32_096)
    assert launch.sm_hz == pytest.approx(1.95e9)


def test_reasons_to_wait_are_sorted_and_the_least_number_of_blocks_limits():
    values = {
        counters.stall_metric("wait"): "1.1",
        counters.stall_metric("long_scoreboard"): "7.2",
        counters.stall_metric("sleeping"): "0",
        "limit_registers": "4",
        "limit_warps": "16",
        "limit_shared": "4",
        "limit_barriers": "0",
        "shared_wavefronts": "200",
        "shared_conflicts": "50",
    }
    (launch,) = ncu.launches(page((0, 0, values)))[0]
    assert list(launch.stalls.items()) == [("long_scoreboard", 7.2), ("wait", 1.1)]
    assert launch.limits == ("registers", "shared memory")
    assert launch.conflicts == 0.25


@pytest.mark.parametrize("log", ["", "==PROF== Connected\n==WARNING== No kernels were profiled.\n"])
def test_a_log_without_a_page_has_no_launch(log):
    assert ncu.launches(log) == {}


def test_the_reason_is_that_of_the_tool_with_what_to_do():
    denied = (
        "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU "
        "Performance Counters on the target device 0.\n"
    )
    why = ncu.refusal(denied)
    assert "may not read the GPU's performance counters" in str(why)
    assert "NVreg_RestrictProfilingToAdminUsers=0" in why.hint
    other = ncu.refusal(
        "==PROF== a\n==ERROR== Failed to initialize the profiler: LibraryNotLoaded\n"
    )
    assert str(other).endswith("Failed to initialize the profiler: LibraryNotLoaded")
    assert "--tool torch" in other.hint
    assert "no kernel" in str(ncu.refusal(""))


def test_no_option_changes_the_gpu_and_every_metric_is_asked_for_once():
    argv = ncu.arguments("ncu", "log.csv")
    assert argv[argv.index("--clock-control") + 1] == "none"
    assert argv[argv.index("--profile-from-start") + 1] == "off"
    asked = argv[argv.index("--metrics") + 1].split(",")
    assert len(asked) == len(set(asked)) == len(counters.COUNTERS) + len(counters.STALLS)


def test_metrics_that_a_gpu_does_not_have_are_left_out():
    told = (
        "==ERROR== Failed to find metric "
        r"regex:^smsp__average_warps_issue_stalled_gmma_per_issue_active\.(sum|ratio)$" + "\n"
        "==ERROR== Failed to find metric launch__cluster_size\n"
    )
    missing = ncu.unknown(told)
    assert len(missing) == 2
    argv = ncu.arguments("ncu", "log.csv", missing)
    asked = argv[argv.index("--metrics") + 1].split(",")
    assert counters.stall_metric("gmma") not in asked
    assert len(asked) == len(counters.metrics()) - 2
    assert ncu.unknown("==PROF== Connected to process 1") == frozenset()

# SPDX-License-Identifier: Apache-2.0

from kernforge.dev import bench as dev_bench
from kernforge.dev import report
from kernforge.dev.rounds import TimeRatio


def row(candidate, mode, low, median, high):
    return {
        "candidate": candidate,
        "mode": mode,
        "median_ns": median,
        "low_ns": low,
        "high_ns": high,
    }


def test_a_ratio_that_was_given_by_rounds_is_turned_about():
    told = {"candidate": "kernel", "value": 0.5, "low": 0.4, "high": 0.625, "rounds": 6}
    rows = [row("kernel", "hot", 90, 100, 120), row("last good", "hot", 40, 50, 60)]
    rows[1]["beside"] = told | {"verdict": "faster"}
    (hot,) = dev_bench.ratios({"workloads": [{"name": "w", "results": rows}]})
    assert (hot.ratio, hot.low, hot.high) == (2.0, 1.6, 2.5)


def test_a_ratio_lies_between_the_ends_of_both_intervals():
    refused = {"candidate": "kernel", "mode": "hot", "refused": "a lie", "skipped": ""}
    case = {
        "name": "w",
        "results": [
            row("kernel", "cold", 90, 100, 120),
            row("last good", "cold", 40, 50, 60),
            refused,
        ],
    }
    cold, hot = dev_bench.ratios({"workloads": [case]})
    assert (cold.ratio, cold.low, cold.high) == (2.0, 1.5, 3.0)
    assert report.verdict(cold) == "slower"
    assert hot.refused == "a lie"
    assert (
        report.verdict(TimeRatio(workload="w", mode="hot", ratio=1.0, low=0.9, high=1.1)) == "same"
    )

# SPDX-License-Identifier: Apache-2.0
"""Launches of several calls as those of one, and their document."""

from kernforge.bench.profiler import launches
from kernforge.bench.profiler.launches import KernelLaunch


def call(*named, start=0.0):
    made = []
    for name, time_ns in named:
        made.append(KernelLaunch(kernel=name, time_ns=time_ns, start_ns=start))
        start += time_ns + 1
    return made


def test_each_launch_has_its_median_over_calls():
    found = launches.same_calls(
        [call(("a", 9.0), ("b", 1.0)), call(("a", 5.0), ("b", 3.0)), call(("a", 7.0), ("b", 2.0))]
    )
    assert [(each.kernel, each.time_ns) for each in found] == [("a", 7.0), ("b", 2.0)]


def test_calls_that_launch_something_else_do_not_count():
    found = launches.same_calls([call(("tune", 90.0)), call(("a", 5.0)), call(("a", 7.0))])
    assert [(each.kernel, each.time_ns) for each in found] == [("a", 7.0)]


def test_the_span_has_the_gaps():
    assert launches.span_ns(call(("a", 5.0), ("b", 3.0))) == 9.0
    assert launches.span_ns([KernelLaunch(kernel="a", time_ns=1.0)]) is None
    assert launches.span_ns([]) is None


def test_what_was_not_counted_is_not_in_the_document():
    document = launches.document(KernelLaunch(kernel="a", time_ns=2.0, dram_read=0.0))
    assert document == {"kernel": "a", "time_ns": 2.0, "dram_read": 0.0}
    full = launches.document(KernelLaunch(kernel="a", time_ns=2.0, dram_read=3.0, dram_written=1.0))
    assert full["dram_bytes_per_s"] == 2e9

# SPDX-License-Identifier: Apache-2.0
"""Which turns a GPU's clocks discard, and what is left."""

import pytest

from kernforge.bench.engine import samples
from kernforge.bench.engine.samples import Reading, TimedTurn


def turn(number, *readings, calls=8, times=(1.0,)):
    return TimedTurn(round=number, calls=calls, times=times, readings=readings)


FINE = Reading(sm_mhz=1980, reasons=frozenset())


def slow(reason, mhz=1980):
    return Reading(sm_mhz=mhz, reasons=frozenset({reason}))


@pytest.mark.parametrize(
    ("bits", "names"),
    [
        (0, set()),
        (0x1, {"idle"}),
        (0x4 | 0x40, {"power cap", "hardware thermal slowdown"}),
        (0x80, {"power brake"}),
        (0x400, {"reason 0x400"}),
    ],
)
def test_bits_have_the_names_of_nvml(bits, names):
    assert samples.reason_names(bits) == names


@pytest.mark.parametrize(
    ("reading", "why"),
    [
        (FINE, ""),
        (Reading(), ""),
        (slow("power cap"), ""),
        (slow("idle"), ""),
        (slow("application clocks"), ""),
        (slow("software thermal slowdown"), "software thermal slowdown"),
        (slow("hardware thermal slowdown"), "hardware thermal slowdown"),
        (slow("hardware slowdown"), "hardware slowdown"),
        (slow("power brake"), "power brake"),
        (Reading(sm_mhz=1700), "low clock"),
        (Reading(sm_mhz=1900), ""),
    ],
)
@pytest.mark.parametrize("end", [0, 1])
def test_a_turn_counts_unless_the_gpu_was_slowed_down_at_either_end(reading, why, end):
    ends = (FINE, reading) if end else (reading, FINE)
    assert samples.discard_reasons([(FINE, FINE), ends, (FINE, FINE)]) == ["", why, ""]


def test_discarded_calls_are_counted_by_reason():
    turns = [turn(0, FINE, FINE), turn(1, FINE, slow("power brake")), turn(2, FINE, FINE)]
    turns += [turn(3, Reading(sm_mhz=1000), FINE, calls=4), turn(4, FINE, slow("power cap"))]
    kept = samples.keep(turns)
    assert sorted(kept.rounds) == [0, 2, 4]
    assert (kept.calls, kept.discarded) == (24, 12)
    assert kept.discarded_for == {"power brake": 8, "low clock": 4}
    assert kept.conditions.reasons == {"power brake": 1, "power cap": 1}
    assert kept.conditions.clocks_mhz == (1000, 1980)
    assert kept.conditions.power_w is None


def test_a_cpu_says_nothing_and_loses_nothing():
    kept = samples.keep([turn(n, times=(1.0, 2.0)) for n in range(6)])
    assert (kept.discarded, kept.conditions, kept.in_a_row) == (0, None, 4)
    assert len(kept.rounds) == 6


def test_of_several_processes_each_is_a_round():
    def process(time, *readings):
        turns = [turn(n, *readings, times=(time, time + 2)) for n in range(3)]
        return samples.Measurement(
            candidate="kernel",
            kind="kernel",
            workload="w",
            mode="hot",
            kept=samples.keep(turns),
            checked=12,
            refused="",
            skipped="",
            moved=1,
            flops=0,
        )

    hot = Reading(sm_mhz=1900, temperature_c=70, reasons=frozenset({"power cap"}))
    whole = samples.merge(
        [process(1.0, FINE, FINE), process(5.0, slow("power brake"), FINE), process(3.0, hot, hot)]
    )
    assert whole.kept.rounds == {0: [1, 3] * 3, 2: [3, 5] * 3}
    assert (whole.kept.calls, whole.kept.discarded, whole.checked) == (48, 24, 36)
    assert whole.kept.discarded_for == {"power brake": 24}
    assert whole.kept.conditions.reasons == {"power brake": 3, "power cap": 3}
    assert whole.kept.conditions.clocks_mhz == (1900, 1980)
    assert whole.kept.conditions.temperature_c == (70, 70)

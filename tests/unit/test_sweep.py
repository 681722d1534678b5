# SPDX-License-Identifier: Apache-2.0
"""The sweep over sizes says that a peer is ahead where it is, and calls noise noise."""

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SWEEP = Path(__file__).parents[2] / "kernels" / "sweep.py"


@pytest.fixture(scope="module")
def sweep():
    spec = importlib.util.spec_from_file_location("kernels_sweep", SWEEP)
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def rows(sweep, times):
    """What a sweep writes of these microseconds at one size."""
    return sweep.figures("sum", 1024, "cold", times, bytes_per_element=12)


# Two steps of the GPU's clock: by their median two of these differ by a twentieth, by their mean not.
LOW, HIGH = [3.6, 3.8] * 150 + [3.6], [3.6, 3.8] * 150 + [3.8]


def named(ours, again, peer):
    return {"ours": ours, "ours, again": again, "device copy": ours, "peer": peer}


def test_a_median_that_jumps_is_not_a_lead(sweep):
    found = rows(sweep, named(HIGH, HIGH, LOW))
    peer = next(row for row in found if row["name"] == "peer")
    assert (peer["median_us"], peer["times_ours"]) == (3.6, 0.947)
    assert list(sweep.ahead_of_ours(found)) == []


def test_a_lead_in_every_round_is_told(sweep):
    found = rows(sweep, named([4.0] * 300, [4.0] * 300, [3.8] * 300))
    assert [row["name"] for row in sweep.ahead_of_ours(found)] == ["peer"]


def test_a_lead_within_that_of_the_second_name_is_noise(sweep):
    found = rows(sweep, named([4.0] * 300, [3.8] * 300, [3.8] * 300))
    assert list(sweep.ahead_of_ours(found)) == []


def test_the_mean_leaves_single_calls_out(sweep):
    assert sweep.middle([1.0] * 95 + [900.0] * 5) == 1.0

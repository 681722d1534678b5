# SPDX-License-Identifier: Apache-2.0
"""What was measured of a kernel's bar, from both kinds of documents."""

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))
import docs_bars


def bench(name, **us):
    """A document of ``kernforge bench`` with the medians of one workload."""
    results = [
        {"candidate": who, "mode": mode, "median_ns": 1e3 * each * slower, "refused": ""}
        | {"share_of_roof": 0.5 / slower}
        for who, each in us.items()
        for mode, slower in (("cold", 1), ("launch", 7))
    ]
    return {"workloads": [{"name": name, "results": results}]}


def rows(name, **us):
    return {"rows": [{"workload": name, "name": who, "median_us": us[who]} for who in us]}


@pytest.mark.parametrize("kind", [bench, rows])
def test_the_cold_times_of_a_workload_are_read(kind):
    found = docs_bars.times(kind("a", kernel=2.0, cuBLAS=3.0))
    assert found["a"].us == {"kernel": 2.0, "cuBLAS": 3.0}
    assert found["a"].of_copy == (0.5 if kind is bench else None)


def test_variants_of_the_kernel_and_what_was_refused_are_no_peers():
    document = rows("a", **{"moe": 2.0, "moe that copies": 1.0, "grouped": 3.0})
    assert docs_bars.times(document)["a"].fastest() == 3.0
    document = bench("a", **{"kernel": 2.0, "kernels-community": 2.5, "other": 3.0})
    assert docs_bars.times(document)["a"].fastest() == 2.5
    document = bench("a", kernel=2.0, fast=1.0, slow=3.0)
    document["workloads"][0]["results"][2]["refused"] = "wrong"
    assert docs_bars.times(document)["a"].fastest() == 3.0


@pytest.mark.parametrize("us", [1.9, 2.1])
def test_a_bar_is_reached_or_not(us):
    times = docs_bars.Times({"kernel": us, "linear alone": 2.0, "other": 9.0}, of_copy=2 / us)
    enough = us < 2
    assert docs_bars.ratio(1.0, "alone")(times) == (f"{2 / us:.3f}", enough)
    assert docs_bars.microseconds(2.0)(times) == (f"{us} us", enough)
    assert docs_bars.of_copy(1.0)(times)[1] == enough
    assert docs_bars.rate(1.0, 2e6)(times)[1] == enough
    assert docs_bars.rate(0.1, 2e6, ahead=True)(times)[1] == enough
    assert docs_bars.ratio(4.0, but="alone")(times)[1]


def test_what_no_document_has_is_not_measured(tmp_path):
    assert {reading for _, reading in docs_bars.readings(tmp_path)} == {None}
    document = rows("sort 16384 x 1024 float32", bitonic_sort=139.0)
    (tmp_path / "bitonic-sort-h200.json").write_text(json.dumps(document))
    assert "| 140 us | 139.0 us | yes |" in docs_bars.table(tmp_path)
    assert docs_bars.table(tmp_path).count("not measured") == len(docs_bars.BARS) - 1


def test_a_difference_that_is_not_sure_is_not_ahead():
    us = {"kernel": 2.0, "other": 3.0, "near": 2.1}
    assert docs_bars.ahead_of_all(docs_bars.Times(us)) == ("1.050", True)
    assert docs_bars.ahead_of_all(docs_bars.Times(us, unsure=frozenset({"other"}))) == (
        "1.050",
        True,
    )
    near = docs_bars.Times(us, unsure=frozenset({"near"}))
    assert docs_bars.ahead_of_all(near) == ("1.050, not sure", False)

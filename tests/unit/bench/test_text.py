# SPDX-License-Identifier: Apache-2.0
"""Two documents compared: what is a regression."""

import copy

import pytest

from kernforge.bench import document as bench_document
from kernforge.bench import text as bench_text
from kernforge.bench.engine import stats
from kernforge.errors import UsageError


def document(median, *, refused="", gpu=None):
    row = {"candidate": "kernel", "mode": "hot", "refused": refused, "skipped": ""}
    if not refused:
        row |= {"median_ns": median, "low_ns": median * 0.99, "high_ns": median * 1.01}
    return {
        "format": bench_text.FORMAT,
        "machine": {"cpu": "one", "gpu": gpu},
        "settings": {"modes": ["hot"]},
        "workloads": [{"name": "4k", "results": [row]}],
    }


@pytest.mark.parametrize(
    ("now", "regressions"),
    [
        (document(100), 0),
        (document(104), 0),  # sure, but allowed
        (document(110), 1),
        (document(50), 0),
        (document(0, refused="wrong"), 1),
        (document(100) | {"workloads": []}, 1),
    ],
)
def test_a_regression_is_sure_and_larger_than_allowed(now, regressions):
    assert len(bench_text.regressions(now, document(100))) == regressions


def test_a_workload_that_was_not_asked_for_is_no_regression():
    now = document(100) | {"workloads": []}
    assert bench_text.regressions(now, document(100), only=["8k"]) == []
    assert len(bench_text.regressions(now, document(100), only=["4k"])) == 1


def test_an_unsure_difference_is_not_a_regression():
    now = copy.deepcopy(document(120))
    now["workloads"][0]["results"][0]["low_ns"] = 90
    assert bench_text.regressions(now, document(100)) == []


@pytest.mark.parametrize(
    ("before", "said"),
    [({}, "not a document"), (document(1, gpu="another"), "is of another, this is one")],
)
def test_only_results_of_this_machine_are_compared(before, said):
    with pytest.raises(UsageError, match=said):
        bench_text.regressions(document(1), before)


def test_who_is_refused_in_a_mode_that_is_skipped_stands_there_once():
    found = document(0, refused="wrong")["workloads"][0]
    skipped = {"candidate": "peer", "mode": "hot", "refused": "", "skipped": "too large"}
    found["results"] = [found["results"][0] | {"skipped": "too large"}, skipped]
    assert [line[:3] for line in bench_text.rows(found, "hot")] == [
        ("peer", "skipped", "too large"),
        ("kernel", "refused", "wrong"),
    ]


@pytest.mark.parametrize(
    ("low", "high", "rounds", "said"),
    [
        (99, 101, 40, ""),
        (4, 251, 40, "between 4 ns and 251 ns: rounds differ too much"),
        (4, 251, 6, "between 4 ns and 251 ns: 6 rounds are too few"),
    ],
)
def test_a_wide_interval_is_not_a_result_and_why(low, high, rounds, said):
    middle = stats.Median(value=100, low=low, high=high, samples=rounds)
    why = bench_document.cannot_tell(middle, rounds)
    assert why.startswith(said)
    found = document(100)["workloads"][0]
    row = found["results"][0] | {"cannot_tell": why, "rounds": rounds, "calls": 9}
    row |= {"bytes_per_s": 1.0, "share_of_roof": 0.5}
    (shown,) = bench_text.rows(found | {"results": [row]}, "hot")
    span, _, reason = why.partition(": ")
    assert shown[1:3] == (("cannot tell", span) if said else ("100 ns", "-1.0% .. +1.0%"))
    found |= {"results": [row, row]}
    assert bench_text.unsure({"workloads": [found]}) == ([f"cannot tell: {reason}"] if said else [])

# SPDX-License-Identifier: Apache-2.0
"""Two documents compared: what is a regression."""

import copy

import pytest

from kernforge.bench import api as bench
from kernforge.bench import text as bench_text
from kernforge.errors import UsageError


def document(median, *, refused="", gpu=None):
    row = {"candidate": "kernel", "mode": "hot", "refused": refused, "skipped": ""}
    if not refused:
        row |= {"median_ns": median, "low_ns": median * 0.99, "high_ns": median * 1.01}
    return {
        "format": bench.FORMAT,
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


def test_an_unsure_difference_is_no_regression():
    now = copy.deepcopy(document(120))
    now["workloads"][0]["results"][0]["low_ns"] = 90
    assert bench_text.regressions(now, document(100)) == []


@pytest.mark.parametrize("before", [{}, document(1, gpu="another")])
def test_only_results_of_this_machine_are_compared(before):
    with pytest.raises(UsageError):
        bench_text.regressions(document(1), before)

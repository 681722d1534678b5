# SPDX-License-Identifier: Apache-2.0
"""A round as JSON and text."""

import json

import pytest

from kernforge.dev import report
from kernforge.dev.rounds import EVERYTHING, Round
from kernforge.testing import project_tests


def test_a_round_is_a_line_of_json_and_plain_text(broken, good):
    for one in (broken, good):
        found = json.loads(json.dumps(report.document(one)))
        assert (found["ok"], found["exit_code"]) == (False, one.exit_code)
    text = report.text(good, None)
    assert "w, cold: 1.5 us, 1.500 of the last good build's (from 1.300 to 1.700)" in text
    assert "tests fail" in text
    assert "it cannot be built: build 1.5 s" in report.text(broken, None)
    assert json.loads(json.dumps(report.document(good)))["kernels"][0]["spill_stores"] == 8


def test_the_last_line_names_what_could_not_be_done(broken):
    for stage, word in (("test", "tested"), ("bench", "measured")):
        broken.seconds[stage] = 1.0
        assert f"it cannot be {word}: build 1.5 s" in report.text(broken, None)


def test_what_could_not_be_tested_is_not_called_good():
    work = EVERYTHING
    one = Round(number=1, files=(), work=work, untested={"v": "no GPU here"}, unread="compressed")
    assert report.text(one, None).splitlines() == [
        "round 1: the first round",
        "not read: compressed",
        "v: not tested: no GPU here",
        "built, not tested: ",
    ]


@pytest.mark.parametrize(
    ("outcome", "last"), [("skipped", "built, not tested: "), ("passed", "good: ")]
)
def test_a_round_whose_tests_were_all_skipped_is_not_called_good(outcome, last):
    tests = tuple(
        {"test": f"tests/test_a.py::test_{name}", "outcome": each, "reason": "Skipped: no GPU"}
        for name, each in (("x", "skipped"), ("y", outcome))
    )
    tested = project_tests.Tested(variant="v", tests=tests, output="", wall_s=1.0)
    untested = {"v": f"every test was skipped: {tested.skip_reason}"} if tested.skip_reason else {}
    one = Round(number=1, files=(), work=EVERYTHING, tested=(tested,), untested=untested)
    assert report.text(one, None).splitlines()[-1] == last
    assert bool(untested) is (outcome == "skipped")

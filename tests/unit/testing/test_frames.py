# SPDX-License-Identifier: Apache-2.0
"""Tracebacks of failed checks."""

import json

import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TESTS = """
import torch
from kernforge.testing import assert_near, op_tests

def wrong(x):
    return x.clamp(min=0) + (x.numel() == 1)

def raises(x):
    raise ValueError("not for me")

RELU = {"reference": lambda x: x.clamp(min=0), "inputs": lambda d, shape: (d(shape),)}
TestWrong = op_tests(op=wrong, dtypes=("float32",), shapes={"one": (1,)}, **RELU)
TestRaises = op_tests(op=raises, dtypes=("float32",), shapes={"one": (1,)}, **RELU)

def test_mine():
    x = torch.ones(3)
    assert_near(x, x + 1, x + 1)
"""


@pytest.fixture(scope="module")
def failures(tmp_path_factory, forked):
    """What pytest prints, and the reasons of the failures by test."""
    place = tmp_path_factory.mktemp("frames")
    (place / "test_it.py").write_text(TESTS)
    argv = ["-m", "pytest", "-p", "kernforge.testing.plugin", place, "-q"]
    argv += ["-p", "no:cacheprovider", "-k", "test_values or mine", f"--rootdir={place}"]
    env = {"KERNFORGE_TEST_COUNTS": place / "counts.json", "COLUMNS": "200"}
    done = forked(*argv, expect=1, cwd=place, **env)
    rows = json.loads((place / "counts.json").read_text())
    reasons = {r["test"].partition("::")[2]: r["reason"] for r in rows if r["outcome"] == "failed"}
    return done.stdout, reasons


def test_a_failure_shows_the_authors_lines_and_the_element(failures):
    out, reasons = failures
    assert "kernforge/testing" not in out
    assert len(reasons) == 3
    for line in ('raise ValueError("not for me")', "assert_near(x, x + 1, x + 1)"):
        assert f">       {line}" in out
    (reason,) = (text for test, text in reasons.items() if test.startswith("TestWrong"))
    assert "result[0]: got 2.5409" in reason

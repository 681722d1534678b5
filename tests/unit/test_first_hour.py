# SPDX-License-Identifier: Apache-2.0
"""Every line of first_hour.toml names tests that exist."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = tomllib.loads(Path(__file__).with_name("first_hour.toml").read_text())["line"]


def defined(path):
    """The names of the tests in a file."""
    return set(re.findall(r"^(?:async )?def (test_\w+)\(", path.read_text(), re.MULTILINE))


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["says"][:40])
def test_each_line_has_tests_that_exist(line):
    assert line["tests"]
    for named in line["tests"]:
        file, _, name = named.partition("::")
        tests = defined(ROOT / file)
        assert tests if name == "..." else name in tests, named

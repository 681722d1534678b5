# SPDX-License-Identifier: Apache-2.0
import json

import pytest

from kernforge.artifact.version import Version2, in_order


@pytest.mark.parametrize("text", ["2.10", "12.8", "0.0"])
def test_a_version_round_trips(text):
    assert str(Version2.parse(text)) == text


def test_versions_are_compared_by_number():
    assert Version2.parse("2.9") < Version2.parse("2.10") == (2, 10)


@pytest.mark.parametrize("text", ["", "12", "12.8.1", "a.b", "12.-1", f"1.{2**64}"])
def test_an_invalid_version_is_refused(text):
    with pytest.raises(ValueError, match="expected a version of two numbers"):
        Version2.parse(text)


@pytest.mark.parametrize(
    ("release", "expected"),
    [("2.13.0+cu130", (2, 13)), ("12.8", (12, 8)), ("26", (26, 0)), ("", None), ("git", None)],
)
def test_a_release_begins_with_its_version(release, expected):
    assert Version2.leading(release) == expected


def test_json_has_a_version_as_a_list():
    assert json.dumps({"torch": Version2(2, 13)}) == '{"torch": [2, 13]}'


def test_architectures_are_sorted_by_number():
    names = ["10.0", "12.1+PTX", "7.5", "9.0", "9.0a", "8.0"]
    assert in_order(names) == ("7.5", "8.0", "9.0", "9.0a", "10.0", "12.1+PTX")
    assert in_order(["gfx1100", "gfx90a", "gfx942"]) == ("gfx90a", "gfx942", "gfx1100")

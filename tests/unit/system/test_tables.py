# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.system import tables


def test_one_thing_is_singular():
    assert [tables.counted(n, "file") for n in (0, 1, 2)] == ["0 files", "1 file", "2 files"]
    assert tables.counted(2, "entry", "entries") == "2 entries"


def test_columns_are_as_wide_as_their_widest_cell():
    assert tables.table([("a", "b"), ("long", "c")], head=("x", "y")) == "x     y\na     b\nlong  c"


def test_names_beyond_the_first_are_counted():
    assert tables.first_names("cba") == "a, b, c"
    assert tables.first_names("cba", 2) == "a, b and 1 more"


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, ""),
        (12, "1 kB"),
        (3_400, "3 kB"),
        (999_000, "999 kB"),
        (37e6, "37 MB"),
        (2.6e9, "2.6 GB"),
    ],
)
def test_a_size_is_never_zero_megabytes(count, text):
    assert tables.size(count) == text

# SPDX-License-Identifier: Apache-2.0
from kernforge.system import tables


def test_columns_are_as_wide_as_their_widest_cell():
    assert tables.table([("a", "b"), ("long", "c")], head=("x", "y")) == "x     y\na     b\nlong  c"

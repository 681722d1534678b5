# SPDX-License-Identifier: Apache-2.0
import itertools

import pytest

from kernforge.system import digest

LOOKALIKES = [
    {"a": "1"},
    {"a": 1},
    {"a": b"1"},
    {"a": True},
    {"a": None},
    {"a": ["1"]},
    {"a": {"1": None}},
    {"a": ["1", ""]},
    {"a": [["1"], ""]},
    {"a": "1", "b": ""},
    {"ab": "1"},
    {"a": "s1:1"},
]


def test_values_that_look_alike_get_different_keys():
    keys = [digest.key("x", **fields) for fields in LOOKALIKES]
    assert len(set(keys)) == len(keys)


def test_the_order_of_a_mapping_is_not():
    orders = itertools.permutations([("a", "1"), ("b", "2"), ("c", "3")])
    assert len({digest.key("x", m=dict(order)) for order in orders}) == 1


def test_a_value_of_unknown_identity_is_refused():
    with pytest.raises(TypeError, match="float"):
        digest.key("x", a=1.5)

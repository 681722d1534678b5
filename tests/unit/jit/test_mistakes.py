# SPDX-License-Identifier: Apache-2.0
"""Which errors stay with all of torch's headers."""

from collections import Counter

import pytest

from kernforge.jit import mistakes
from kernforge.source.declarations import Declared

AT = ("at",)


def test_the_first_error_counts_and_what_is_written_before_it():
    output = """a.cpp:9:1: warning: unused
a.cpp:2:7: error: expected ';' before 'return'
a.cpp:3:1: error: 'y' was not declared in this scope
"""
    error = mistakes.first_error(output)
    assert (error.line, error.message) == (2, "expected ';' before 'return'")
    texts = {"a.cpp": "one\ntwo\nthree\n", "a.h": "head"}
    assert mistakes.before(error, texts).split() == ["head", "one", "two"]
    assert mistakes.first_error("killed by signal 9") is None


def test_names_of_members_are_distinguished_from_others():
    used = mistakes.used_names(
        '#include <torch/a.h>\nauto y = x.relu(); p->relu(at::relu6(z)); // "TORCH"'
    )
    assert used.members == {"relu"}
    assert used.plain == {"x", "y", "z", "p", "at", "relu6"}
    assert used.called == {"relu6"}


@pytest.mark.parametrize(
    ("declared", "brought"),
    [
        ((("nn",), "relu", "function"), False),
        ((AT, "other", "function"), False),
        ((AT, "contiguous", "function"), False),
        ((AT, "relu", "function"), True),
        ((AT, "x", "function"), False),
        ((("torch", "_impl"), "relu", "function"), True),
        (((), "contiguous", "macro"), True),
        ((("torch",), "Tensor", "name"), False),
        ((AT, "Tensor", "definition"), True),
        ((AT, "Slice", "definition"), True),
    ],
)
def test_what_all_headers_declare_of_the_names_that_are_used(declared, brought):
    known = Counter([Declared(AT, "Tensor", "name")])
    found = mistakes.brings(
        known,
        known + Counter([Declared(*declared)]),
        mistakes.UsedNames(
            frozenset({"contiguous"}),
            frozenset({"relu", "x", "Tensor", "Slice"}),
            frozenset({"relu"}),
        ),
        {"at", "torch"},
    )
    assert found is brought

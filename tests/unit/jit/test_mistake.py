# SPDX-License-Identifier: Apache-2.0
"""Which complaints are certain to come again with more headers."""

import pytest

from kernforge.jit import advice, mistake

TYPO = "a.cpp:3:5: error: 'scael' was not declared in this scope; did you mean 'scale'?\n"
SEEN = b"""# 1 "a.cpp"
# 1 "/torch/extension.h" 1
#define CHECK(x) check(x)
void check(int);
# 2 "a.cpp" 2
int f(int scale) { return %s; }
"""


@pytest.mark.parametrize(
    ("output", "names"),
    [
        (TYPO, {"scael"}),
        (TYPO + "a.cpp:4:5: error: 'b' was not declared in this scope\n", {"scael", "b"}),
        ("/a.cpp:3:5: error: use of undeclared identifier 'scael'\n", {"scael"}),
        (TYPO + "a.cpp:9:1: warning: unused variable 'y'\n", {"scael"}),
        (TYPO + "a.cpp:4:5: error: 'Tensor' has no member named 'b'\n", set()),
        (TYPO.replace("a.cpp", "a.cu"), set()),
        ('a.cu(3): error: identifier "scael" is undefined\n', set()),
        ("a.cpp:3:5: error: 'gelu' is not a member of 'at'\n", set()),
        ("killed by signal 9\n", set()),
    ],
)
def test_only_names_that_nothing_declares_are_looked_for(output, names):
    assert mistake.unknown(output) == names


@pytest.mark.parametrize(
    ("used", "name", "places"),
    [
        (b"scael", "scael", 1),
        (b"scael + scael", "scael", 2),
        (b"scale2", "scael", 0),
        (b'text("scael")', "scael", 0),
        (b"check(1)", "check", None),
        (b"1", "CHECK", None),
    ],
)
def test_a_name_is_sought_in_all_that_a_compiler_reads(used, name, places):
    assert mistake.occurrences(SEEN % used, name, {"a.cpp"}) == places


def test_a_second_attempt_says_what_it_waits_for():
    said = advice.again("a.cpp cannot be compiled\n" + TYPO)
    assert said.startswith("a.cpp:3:5: error: 'scael' was not declared in this scope")
    assert said.endswith("; compiling again with all of torch's headers, which takes longer")

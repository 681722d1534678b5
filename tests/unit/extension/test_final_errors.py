# SPDX-License-Identifier: Apache-2.0
"""Errors that no further header can prevent, in the words of the compilers."""

import pytest

from kernforge.extension import torch_headers

BODY = """// a comment with a { brace
torch::Tensor scale(torch::Tensor x) {
  auto y = torch::empty_like(x)
  auto* to = y.data_ptr<float>();
  if (x.is_contiguous() return y;
  return y
}
"""
MACRO = BODY.replace("auto*", "C10_UNUSED auto*")
SCOPE = """FOO_API(x)
void f() {}
struct A { int n } a;
"""


TORCH = "/site/torch/include"


def lacks_header(output, texts, known=()):
    return torch_headers.lacks_header(output, texts, [TORCH], known.__contains__)


@pytest.mark.parametrize(
    ("output", "text"),
    [
        ("a.cpp:4:3: error: expected ',' or ';' before 'auto'", BODY),
        ("a.cpp:5:24: error: expected ')' before 'return'", BODY),
        ("a.cpp:7:1: error: expected ';' before '}' token", BODY),
        ("a.cpp:5:14: error: expected ')' before ';' token", BODY),
        ('a.cpp(4): error: expected a ";"\n    auto* to = y.data_ptr<float>();\n    ^\n', BODY),
        ("a.cpp:4:3: error: expected ';' at end of declaration", BODY),
        ("a.cpp:2:9: error: 'class at::Tensor' has no member named 'is_contigous'", BODY),
        (
            "a.cpp:2:9: error: 'using T = class at::Tensor' {aka 'class at::Tensor'} has no member",
            BODY,
        ),
        (
            "a.cpp:2:9: error: 'class at::Tensor' {aka 'class x::B'} has no member named 'is_c'",
            BODY,
        ),
        ("a.cpp:2:5: error: no member named 'is_contigous' in 'at::Tensor'", BODY),
        ('a.cpp(2): error: class "at::Tensor" has no member "is_contigous"', BODY),
        ('a.cpp(2): error: class "at::Tensor" (aka "at::T") has no member "is_contigous"', BODY),
    ],
)
def test_an_error_that_is_not_about_a_name_is_final(output, text):
    assert not lacks_header(output, {"b.h": "int b;\n", "a.cpp": text})


@pytest.mark.parametrize(
    ("output", "text"),
    [
        # A macro of a header that is missing looks like this outside of a function.
        ("a.cpp:2:1: error: expected ',' or ';' before 'void'", SCOPE),
        ('a.cpp(2): error: expected a ";"\n  void f() {}\n  ^\n', SCOPE),
        ("a.cpp:3:18: error: expected ';' before '}' token", SCOPE),
        # What follows may be a macro.
        ("a.cpp:4:3: error: expected ';' before 'C10_UNUSED'", BODY),
        ('a.cpp(4): error: expected a ";"\n    C10_UNUSED auto* to;\n    ^\n', MACRO),
        ("a.cpp:3:1: error: expected unqualified-id before 'return'", BODY),
        # A specialization of a template may have the member.
        ("a.cpp:3:1: error: 'struct Caster<int>' has no member named 'load'", BODY),
        ("a.cpp:3:1: error: 'using C = struct Caster<int>' has no member named 'load'", BODY),
        ('a.cpp(3): error: class "Caster<int>" has no member "load"', BODY),
        ("a.cpp:3:1: error: 'x' was not declared in this scope", BODY),
        (f"{TORCH}/elsewhere.h:4:3: error: expected ';' before 'auto'", BODY),
    ],
)
def test_a_header_may_prevent_the_others(output, text):
    assert lacks_header(output, {"a.cpp": text}, known={"x"})


@pytest.mark.parametrize(
    ("output", "final"),
    [
        (
            (
                'a.cpp(2): error: no operator "+" matches these operands\n'
                "            operand types are: unsigned int + const uint3\n  x + threadIdx\n"
                "    ^\n"
            ),
            True,
        ),
        (
            (
                'a.cpp(2): error: no operator "*=" matches these operands\n'
                "            operand types are: half *= int\n  p[i] *= 2\n       ^\n"
            ),
            True,
        ),
        (
            (
                "a.cpp:2:3: error: no match for 'operator+' "
                "(operand types are 'unsigned int' and 'uint3')"
            ),
            True,
        ),
        (
            "a.cpp:2:3: error: no match for 'operator+' (operand types are 'at::Tensor' and 'int')",
            False,
        ),
        (
            (
                'a.cpp(2): error: no operator "+" matches these operands\n'
                "            operand types are: c10::Half + half\n  x + y\n    ^\n"
            ),
            False,
        ),
        ("a.cpp:1:10: fatal error: nothere.h: No such file or directory", True),
    ],
)
def test_no_header_of_torch_has_operators_of_plain_types_or_files_of_the_user(output, final):
    assert lacks_header(output, {"a.cpp": BODY}) is not final


@pytest.mark.parametrize(
    ("message", "name"),
    [
        ("a.cpp:1:1: error: 'nubmer' was not declared in this scope; did you mean", "nubmer"),
        ("a.cpp:1:1: error: 'empty_lik' is not a member of 'torch'", "empty_lik"),
        ("a.cpp:1:1: error: 'Tenso' in namespace 'torch' does not name a type", "Tenso"),
        ("a.cpp:1:1: error: 'Tenso' does not name a type", "Tenso"),
        ("a.cpp:1:1: error: use of undeclared identifier 'nubmer'", "nubmer"),
        ("a.cpp:1:1: error: no member named 'empty_lik' in namespace 'torch'", "empty_lik"),
        ('a.cu(1): error: identifier "nonsense" is undefined', "nonsense"),
        ('a.cu(1): error: namespace "torch" has no member "empty_lik"', "empty_lik"),
        ("a.cpp:1:1: error: no matching function for call to 'f(int)'", ""),
    ],
)
def test_a_name_that_is_in_no_header_is_a_mistake(message, name):
    assert lacks_header(message, {}, known={name})
    assert lacks_header(message, {}) is (name == "")


@pytest.mark.parametrize(
    ("output", "lacks"),
    [
        (('a.cu(2): error: invalid redefinition of type name "uchar3" (declared at line 113 of '
         "/cuda/include/vector_types.h)\n"), False),
        (("a.cpp:2:8: error: redefinition of 'struct uchar3'\n"
          "/cuda/include/vector_types.h:113:24: note: previous definition of 'struct uchar3'\n"),
         False),
        (("a.cpp:2:8: error: redefinition of 'struct at::Scalar'\n"
         f"{TORCH}/ATen/Scalar.h:9:24: note: previous definition\n"), True),
        ("a.cpp:3:9: error: expected '<' before '(' token", False),
        ('a.cu(3): error: expected a "<"\n  static_cast(x)\n  ^\n', False),
        ("/usr/include/c++/13/bits/stl_algo.h:9:1: error: no match for 'operator<'", False),
        ("a.cpp:3:1: error: 'iota' is not a member of 'std'", True),
        ("killed by signal 9", False),
    ],
)  # fmt: skip
def test_an_error_whose_places_are_not_torchs_is_final(output, lacks):
    assert lacks_header(output, {"a.cpp": BODY, "a.cu": BODY}) is lacks

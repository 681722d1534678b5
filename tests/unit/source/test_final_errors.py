# SPDX-License-Identifier: Apache-2.0
"""Errors that no further header can prevent, in the words of the compilers."""

import pytest

from kernforge.source import torch_headers

BODY = """// a comment with a { brace
torch::Tensor scale(torch::Tensor x) {
  auto y = torch::empty_like(x)
  auto* to = y.data_ptr<float>();
  if (x.is_contiguous() return y;
  return y
}
"""
CHECKED = BODY.replace("auto y = torch::empty_like(x)", "TORCH_CHECK(x.is_cuda())")
MACRO = BODY.replace("auto*", "C10_UNUSED auto*")
SCOPE = """FOO_API(x)
void f() {}
struct A { int n } a;
"""


TORCH = "/site/torch/include"
OPERATOR = """a.cpp(2): error: no operator "%s" matches these operands
            operand types are: %s
  x + y
    ^
"""


def may_lack_header(output, texts, known=()):
    return torch_headers.may_lack_header(output, texts, [TORCH], known.__contains__)


MEMBER = "'class at::Tensor' {aka 'class x::B'} has no member named 'is_c'"
FINAL = [
    (BODY, "a.cpp:4:3: error: expected ',' or ';' before 'auto'"),
    (BODY, "a.cpp:5:24: error: expected ')' before 'return'"),
    (BODY, "a.cpp:7:1: error: expected ';' before '}' token"),
    (BODY, "a.cpp:5:14: error: expected ')' before ';' token"),
    (BODY, 'a.cpp(4): error: expected a ";"\n    auto* to = y.data_ptr<float>();\n    ^\n'),
    (BODY, "a.cpp:4:3: error: expected ';' at end of declaration"),
    (BODY, "a.cpp:3:9: error: expected '<' before '(' token"),
    (BODY, 'a.cpp(3): error: expected a "<"\n  static_cast(x)\n  ^\n'),
    (BODY, "a.cpp:2:9: error: 'class at::Tensor' has no member named 'is_contigous'"),
    (BODY, "a.cpp:2:9: error: 'using T = class at::Tensor' {aka 'class at::Tensor'} has no member"),
    (BODY, f"a.cpp:2:9: error: {MEMBER}"),
    (BODY, "a.cpp:2:5: error: no member named 'is_contigous' in 'at::Tensor'"),
    (BODY, 'a.cpp(2): error: class "at::Tensor" has no member "is_contigous"'),
    (BODY, 'a.cpp(2): error: class "at::Tensor" (aka "at::T") has no member "is_contigous"'),
    # No header of torch has operators of plain types, or files of the user.
    (BODY, OPERATOR % ("+", "unsigned int + const uint3")),
    (BODY, OPERATOR % ("*=", "half *= int")),
    (BODY, "a.cpp:2:3: error: no match for 'operator+' (operand types are 'int' and 'uint3')"),
    (BODY, "a.cpp:1:10: fatal error: nothere.h: No such file or directory"),
    (BODY, "/usr/include/c++/13/bits/stl_algo.h:9:1: error: no match for 'operator<'"),
    (BODY, "killed by signal 9"),
    (
        BODY,
        "a.cpp:2:8: error: redefinition of 'struct uchar3'\n/cuda/vector_types.h:9:1: note: x\n",
    ),
    (BODY, 'a.cpp(2): error: invalid redefinition of type name "uchar3"\n  struct\n  ^\n'),
    (SCOPE, "a.cpp:3:18: error: expected ';' before '}' token"),
    (CHECKED, "a.cpp:4:3: error: expected ';' before 'auto'"),
]
MORE_HEADERS = [
    (BODY, f"{TORCH}/python.h:14:10: fatal error: frameobject.h: No such file or directory"),
    # A macro of a header that is missing looks like this.
    (SCOPE, "a.cpp:2:1: error: expected ',' or ';' before 'void'"),
    (SCOPE, 'a.cpp(2): error: expected a ";"\n  void f() {}\n  ^\n'),
    # What follows may be a macro.
    (MACRO, "a.cpp:4:3: error: expected ';' before 'C10_UNUSED'"),
    (MACRO, 'a.cpp(4): error: expected a ";"\n    C10_UNUSED auto* to;\n    ^\n'),
    (BODY, "a.cpp:3:1: error: expected unqualified-id before 'return'"),
    # A specialization of a template may have the member.
    (BODY, "a.cpp:3:1: error: 'struct Caster<int>' has no member named 'load'"),
    (BODY, "a.cpp:3:1: error: 'using C = struct Caster<int>' has no member named 'load'"),
    (BODY, 'a.cpp(3): error: class "Caster<int>" has no member "load"'),
    (BODY, "a.cpp:2:3: error: no match for 'operator+' (operand types are 'at::Tensor' and 'int')"),
    (BODY, OPERATOR % ("+", "c10::Half + half")),
    (BODY, "a.cpp:3:1: error: 'iota' is not a member of 'std'"),
    (BODY, f"{TORCH}/elsewhere.h:4:3: error: expected ';' before 'auto'"),
    (BODY, f"a.cpp:2:8: error: redefinition of 'at::S'\n{TORCH}/S.h:9:24: note: previous\n"),
    (BODY, "a.cpp:1:1: error: no matching function for call to 'f(int)'"),
]


@pytest.mark.parametrize(
    ("text", "output", "lacks"),
    [(*row, lacks) for rows, lacks in ((FINAL, False), (MORE_HEADERS, True)) for row in rows],
)
def test_only_an_error_that_headers_can_prevent_is_compiled_again(text, output, lacks):
    assert may_lack_header(output, {"b.h": "int b;\n", "a.cpp": text}) is lacks


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
    ],
)
def test_a_name_that_is_in_no_header_is_a_mistake(message, name):
    assert may_lack_header(message, {}, known={name})
    assert not may_lack_header(message, {})

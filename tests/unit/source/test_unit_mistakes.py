# SPDX-License-Identifier: Apache-2.0
"""Errors that the text of a unit alone shows, and texts that a compiler may take."""

import pytest

from kernforge.source import includes, unit_mistakes

EXPAND = "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}\n"
TORCH = "#include <torch/library.h>\n"
STRUCT = "struct uchar3 { char x; };\n"


def problems(path, text, **more):
    files = {path: text, **more}
    closure = includes.closure(path, files, ())
    return [(line, problem) for _, line, problem in unit_mistakes.find([(path, closure, files)])]


@pytest.mark.parametrize(
    ("path", "text", "says"),
    [
        ("a.cpp", TORCH + EXPAND, "TORCH_LIBRARY_EXPAND is a macro"),
        ("a.cpp", TORCH + "REGISTER_EXTENSION(x)", "REGISTER_EXTENSION is a macro"),
        ("a.cu", "\n" + STRUCT, "CUDA defines uchar3"),
        ("a.cu", "namespace a {}\nstruct dim3 : b {};", "CUDA defines dim3"),
        ("a.cpp", "#include <cuda_runtime.h>\nclass float4 {};", "CUDA defines float4"),
    ],
)
def test_a_sure_error_is_named_with_its_line(path, text, says):
    ((line, problem),) = problems(path, text)
    assert says in problem
    assert line == 2


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("a.cpp", TORCH + '#include "registration.h"\n' + EXPAND),
        ("a.cpp", "#define TORCH_LIBRARY_EXPAND(A, B) TORCH_LIBRARY(A, B)\n" + EXPAND),
        ("a.cpp", "#include <mine/macros.h>\n" + EXPAND),
        ("a.cpp", f"#if 0\n{EXPAND}#endif\n// {EXPAND}"),
        ("a.cpp", STRUCT),
        ("a.cu", "namespace mine {\n" + STRUCT + "}"),
        ("a.cu", "struct uchar3;\nstruct uchar5 {};\n// struct dim3 {}"),
        ("a.cu", "#define uchar3 my_uchar3\n" + STRUCT),
    ],
)
def test_what_a_compiler_may_take_is_left_to_it(path, text):
    assert not problems(path, text, **{"registration.h": ""})


ADD = "torch::Tensor add(torch::Tensor x) { return x; }"


@pytest.mark.parametrize(
    ("names", "cpp", "cuda", "says"),
    [
        (["ad"], ADD, "", "is add meant"),
        (["add", "Add"], ADD, "", "is add meant"),
        (["add"], "int other();", ADD, "declare it in cpp_sources"),
        (["add", "ns::add"], ADD, "", ""),
        (["ad"], f'#include "more.h"\n{ADD}', "", ""),
        (["add_op"], f"#define OP(N) int N##_op();\nOP(add)\n{ADD}", "", ""),
        (["getpid"], f"#include <unistd.h>\n{ADD}", "", ""),
        (["rand"], ADD, "", ""),
    ],
)
def test_a_function_that_no_source_has_is_named(names, cpp, cuda, says):
    problem = unit_mistakes.unbound(names, cpp, cuda)
    assert says in problem
    assert bool(says) is bool(problem)

# SPDX-License-Identifier: Apache-2.0
"""Mistakes that the text alone shows, and texts that a compiler and an import may take."""

import pytest

from kernforge.source import includes, mistakes

BINDING = """#include "registration.h"
Tensor grey(Tensor x) { return x; }
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("img2gray(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) { ops.impl("img2gray", &grey); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
PYTHON = "from ._ops import ops\n\n\ndef grey(x):\n    return ops.img2gray(x)\n"


OTHER = 'TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) { m.def("of_another_backend() -> ()"); }'


def found(binding, python):
    sources = {"b.cpp": binding, "n.h": "#define NAMESPACE TORCH_EXTENSION_NAME"}
    everything = {**sources, "other.cu": OTHER}
    return sorted(mistakes.of_operators(sources, everything, {"__init__.py": python}))


def test_a_right_project_has_no_mistake():
    assert found(BINDING, PYTHON) == []


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("REGISTER_EXTENSION(TORCH", "// (TORCH", "b.cpp:3", "no source has REGISTER_EXTENSION"),
        (
            "LIBRARY_EXPAND(TORCH_EXTENSION_NAME",
            "LIBRARY(my",
            "b.cpp:3",
            "defines img2gray, which ",
        ),
        ("IMPL_EXPAND(TORCH_EXTENSION_NAME", "IMPL(my", "b.cpp:4", "defined in another namespace"),
        ('impl("img2gray"', 'impl("img2grey"', "b.cpp:4", "implements img2grey, and no source"),
        ("ops.img2gray(x)", "ops.img2grey(x)", "__init__.py:5", "the operator img2grey, which"),
        ("ops.img2gray(x)", "ops.grau.default(x)", "__init__.py:5", "the operator grau, which"),
        ("return ops", "return _ops.ops.f(x) + ops", "__init__.py:5", "the operator f,"),
        ("\n\n\n", "\nfake(add_op_namespace_prefix('im2gray'))\n", "__init__.py:2", "im2gray"),
    ],
)
def test_what_cannot_work_is_named_with_its_line(old, new, place, words):
    first, *_ = found(BINDING.replace(old, new), PYTHON.replace(old, new))
    assert f"{first.path}:{first.line}" == place
    assert words in first.problem


def test_a_typo_is_told_the_near_name():
    (only,) = found(BINDING, PYTHON.replace("ops.img", "ops.im"))
    assert only.fix == "write img2gray"


@pytest.mark.parametrize(
    ("binding", "python"),
    [
        (BINDING, PYTHON + "if hasattr(ops, 'fast'):\n    ops.fast()\n"),
        (BINDING, PYTHON + "@custom_op(add_op_namespace_prefix('f'))\ndef f(x): ...\nops.f()\n"),
        (BINDING, "from ._ops import ops\ndef f(ops_):\n    ops = g()\n    ops.anything()\n"),
        (BINDING, "from torch import ops\nops.aten.add(1, 2)\n"),
        (BINDING, PYTHON + "ops.of_another_backend()\n"),
        (BINDING.replace('"img2gray(Tensor x) ', 'NAME "(Tensor x) '), PYTHON),
        (BINDING.replace("TORCH_EXTENSION_NAME, ops", "NAMESPACE, ops"), PYTHON),
        (BINDING.replace("REGISTER_EXTENSION(", "PyMODINIT_FUNC PyInit_own("), PYTHON),
        (BINDING.replace("REGISTER_EXTENSION(", "MACRO_OF_OWN_HEADER("), PYTHON),
        (BINDING.replace("ops.impl", "more(ops);\n ops.impl"), PYTHON + "ops.of_more()\n"),
        (BINDING.replace("ops.impl", '\n#include "x.inc"\n ops.impl'), PYTHON + "ops.of_x()\n"),
        (BINDING + 'TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("relu", &grey); }', PYTHON),
    ],
)
def test_what_may_work_is_accepted(binding, python):
    assert found(binding, python) == []


EXPAND = "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}\n"
TORCH = "#include <torch/library.h>\n"
STRUCT = "struct uchar3 { char x; };\n"


def problems(path, text, **more):
    files = {path: text, **more}
    closure = includes.closure(path, files, ())
    return [(line, problem) for _, line, problem, _ in mistakes.of_units([(path, closure, files)])]


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
    problem = mistakes.unbound(names, cpp, cuda)
    assert says in problem
    assert bool(says) is bool(problem)

# SPDX-License-Identifier: Apache-2.0
"""``extern "C"`` on one side only."""

import pytest

from kernforge.source.linkage import one_sided

CU = """// extern "C" void launch(float*);  a comment declares nothing
__global__ void kernel(float* x) {}
extern "C" void launch(float* x, int n) {
    kernel<<<1, 1>>>(x);
}
"""
CPP = """#include <torch/extension.h>
void launch(float* x, int n);
torch::Tensor run(torch::Tensor x) {
  launch(x.data_ptr<float>(), 3);
  return x;
}
"""


def test_a_c_launcher_that_is_declared_as_cpp_is_named_with_both_lines():
    (found,) = one_sided(["launch(float*, int)"], {"my_op.cu": CU, "my_op.cpp": CPP})
    assert found.message == (
        'my_op.cpp:2: launch is declared without extern "C", and my_op.cu:3 defines it with '
        'extern "C": for the linker these are two functions, and the one that is called is not '
        "defined"
    )
    assert (
        'write extern "C" before launch in my_op.cpp:2 too, or remove it in my_op.cu:3'
        in found.hint
    )


def test_a_cpp_launcher_that_is_declared_as_c():
    texts = {
        "op.cu": CU.replace('extern "C" void', "void").replace("// void", "// "),
        "op.h": '#pragma once\nextern "C" {\nvoid launch(float* x, int n);\n}\n',
    }
    (found,) = one_sided(["launch"], texts)
    assert found.message.startswith(
        'op.h:3: launch is declared with extern "C", and op.cu:3 defines'
    )
    assert "before launch in op.cu:3 too, or remove it in op.h:3" in found.hint


@pytest.mark.parametrize(
    "texts",
    [
        {"op.cpp": CPP},
        {"op.cu": CU.replace('extern "C" void', "void"), "op.cpp": CPP},
        {"op.cu": CU, "op.cpp": CPP.replace("void launch", 'extern "C" void launch')},
        {"op.cu": CU, "op.cpp": "void f() { launch(1, 2); }\nint g() { return launch(1); }\n"},
    ],
    ids=["defined nowhere", "both C++", "both C", "never declared"],
)
def test_other_reasons_are_left_to_others(texts):
    assert one_sided(["launch(float*, int)"], texts) == ()


def test_names_that_are_not_functions_are_skipped():
    texts = {"op.cu": CU, "op.cpp": CPP}
    assert one_sided(["vtable for Thing", "typeinfo for T", "ns::operator+(int)"], texts) == ()

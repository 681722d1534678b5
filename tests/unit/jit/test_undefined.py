# SPDX-License-Identifier: Apache-2.0
"""What is told of a function that a built project calls and no source defines."""

import pytest

from kernforge.jit import undefined

TEXTS = {
    "relu.h": "void relu(const float* x);\n",
    "relu.cu": '#include "relu.h"\n__global__ void k() {}\n',
    "other.cu": "__global__ void other() {}\n",
    "torch-ext/binding.cpp": '#include "../relu.h"\nvoid f() { mine::relu(x); }\n',
}
KERNELS = ("relu.cu", "other.cu", "relu.h")
NAME = "mine::relu(float const*)"


@pytest.mark.parametrize(
    ("words", "symbol"),
    [
        ("/a/b.so: undefined symbol: _ZN4mine4reluEPKf", "_ZN4mine4reluEPKf"),
        ("/a/b.so: undefined symbol: relu", "relu"),
        ("libcudart.so.13: cannot open shared object file", ""),
    ],
)
def test_the_missing_symbol_is_read_from_the_loaders_words(words, symbol):
    assert undefined.symbol(words) == symbol


def test_it_is_told_where_the_function_is_named_and_where_it_belongs():
    error = undefined.error("relu", NAME, TEXTS, KERNELS)
    assert error.message == (
        f"relu cannot be imported: {NAME} is named in relu.h, torch-ext/binding.cpp, "
        "and no source defines it"
    )
    assert error.hint.startswith("define it in relu.cu (namespace and arguments")


def test_where_no_source_includes_the_header_any_may_define_it():
    texts = {**TEXTS, "relu.cu": ""}
    assert "define it in other.cu or relu.cu (" in (
        undefined.error("relu", NAME, texts, KERNELS).hint
    )
    assert "define it in a source (" in undefined.error("relu", NAME, texts, ()).hint


def test_a_function_that_the_project_does_not_name_is_not_its_own():
    assert undefined.error("relu", "at::empty(long)", TEXTS, KERNELS) is None

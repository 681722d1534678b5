# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.extension import inline
from kernforge.extension.device import split

RAW = "__global__ void f(float* x) { x[0] = 1; }  // as torch::relu does\n"
STABLE = "#include <torch/csrc/stable/library.h>\nSTABLE_TORCH_LIBRARY(ops, m) {}\n"


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (RAW, True),
        ('const char* s = "torch::Tensor";', True),
        ("/* at::Tensor */ int x;", True),
        ("torch::Tensor f();", False),
        ("void f(Tensor x);", False),
        ("#include <ATen/ATen.h>", False),
        ("TORCH_CHECK(true);", False),
        ('#include "mine.h"', True),
    ],
)
def test_raw_cuda_is_distinguished_from_cuda_that_uses_torch(text, raw):
    assert split.is_raw(text) is raw


@pytest.mark.parametrize(
    ("text", "stable"),
    [
        (STABLE, True),
        (STABLE + "#include <ATen/ATen.h>", False),
        (STABLE + "at::Tensor x;", False),
        (STABLE + "torch::Tensor x;", False),
        (STABLE + "torch::stable::Tensor x;", True),
        ("at::Tensor f();", False),
    ],
)
def test_a_binding_on_the_stable_abi_is_recognised(text, stable):
    assert inline.is_stable(text) is stable


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        ("", []),
        ("uint32_t n;", ["cstdint"]),
        ("int f() { return std::min(1, 2); }", inline._LIGHT),
        ("half h;", ["cuda_fp16.h"]),
        ("void f(__nv_bfloat16* x);", ["cuda_bf16.h"]),
        ('// std::vector\nconst char* s = "std::vector";', []),
    ],
)
def test_raw_cuda_gets_the_headers_that_it_shows_a_use_for(code, headers):
    files = inline.inline(STABLE, RAW + code, None)
    assert files["cuda_sources.cu"].split()[1::2] == [
        *(f"<{name}>" for name in (*headers, "cuda.h", "cuda_runtime.h")),
        '"cuda_sources"',
    ]


@pytest.mark.parametrize(
    "code", ["std::filesystem::path p;", "using namespace std;", '#include "a.h"']
)
def test_raw_cuda_gets_all_headers_where_its_use_is_not_known(code):
    text = inline.inline(STABLE, RAW + code, None)["cuda_sources.cu"]
    assert all(f"#include <{name}>" in text for name in ("vector", "optional", "cstdint"))


@pytest.mark.parametrize("functions", ["f", ["f"], {"f": 'says "hello"\n'}])
def test_functions_are_bound_under_the_macro_of_the_name(functions):
    files = inline.inline("int f() { return 1; }", "", functions)
    doc = r"says \"hello\"\n" if isinstance(functions, dict) else "f"
    assert "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {" in files["cpp_sources.cpp"]
    assert files["functions"] == f'm.def("f", torch::wrap_pybind_function(f), "{doc}");\n'


def test_a_binding_has_the_callers_options():
    files = inline.inline("int f();", "", ["f"], error_handling=False, gil_not_used=True)
    assert files["functions"] == 'm.def("f", f, "f");\n'
    assert "_NAME, m, pybind11::mod_gil_not_used()) {" in files["cpp_sources.cpp"]


def test_functions_of_another_kind_are_refused():
    with pytest.raises(UsageError, match="functions has the type int"):
        inline.inline("", "", 3)


@pytest.mark.parametrize("source", [b"int x;", ["int x;", 3], "toy.cpp", ["dir/kernel.cu"]])
def test_a_value_that_is_not_the_text_of_a_source_is_refused(source):
    with pytest.raises(UsageError, match="a source is") as caught:
        inline.inline(source, (), None)
    assert "load takes paths" in caught.value.hint

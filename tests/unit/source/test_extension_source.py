# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.errors import UsageError
from kernforge.source import extension_source

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
    assert extension_source.is_raw(text) is raw


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
    assert extension_source.is_stable(text) is stable


def test_raw_cuda_and_stable_bindings_get_no_header_of_torch():
    files = extension_source.inline(STABLE, RAW, None)
    assert "torch/extension.h" not in files["main.cpp"].text
    assert "torch/types.h" not in files["cuda.cu"].text
    assert "cuda_runtime.h" in files["cuda.cu"].text


@pytest.mark.parametrize(
    ("code", "headers"),
    [
        ("", []),
        ("uint32_t n;", ["cstdint"]),
        ("int f() { return std::min(1, 2); }", ["algorithm"]),
        ("half h;", ["cuda_fp16.h"]),
        ("void f(__nv_bfloat16* x);", ["cuda_bf16.h"]),
        ('// std::vector\nconst char* s = "std::vector";', []),
    ],
)
def test_raw_cuda_gets_the_headers_that_it_shows_a_use_for(code, headers):
    files = extension_source.inline(STABLE, RAW + code, None)
    lines = files["cuda.cu"].text.partition("__global__")[0].split()[1::2]
    assert lines == [f"<{name}>" for name in (*headers, "cuda.h", "cuda_runtime.h")]


@pytest.mark.parametrize(
    "code", ["std::filesystem::path p;", "using namespace std;", '#include "a.h"']
)
def test_raw_cuda_gets_all_headers_where_its_use_is_not_known(code):
    text = extension_source.inline(STABLE, RAW + code, None)["cuda.cu"].text
    assert all(f"#include <{name}>" in text for name in ("vector", "optional", "cstdint"))


@pytest.mark.parametrize("functions", ["f", ["f"], {"f": 'says "hello"\n'}])
def test_functions_are_bound_under_the_macro_of_the_name(functions):
    text = extension_source.inline("int f() { return 1; }", "", functions)["main.cpp"].text
    doc = r"says \"hello\"\n" if isinstance(functions, dict) else "f"
    assert "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {" in text
    assert f'm.def("f", torch::wrap_pybind_function(f), "{doc}");' in text


def test_functions_can_be_called_without_torchs_errors():
    text = extension_source.inline("int f();", "", ["f"], error_handling=False)["main.cpp"].text
    assert 'm.def("f", f, "f");' in text


def test_functions_may_run_without_the_gil():
    text = extension_source.inline("int f();", "", ["f"], gil_not_used=True)["main.cpp"].text
    assert "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m, pybind11::mod_gil_not_used()) {" in text


def test_functions_of_another_kind_are_refused():
    with pytest.raises(UsageError, match="functions has the type int"):
        extension_source.inline("", "", 3)


@pytest.mark.parametrize("source", [b"int x;", ["int x;", 3], "toy.cpp", ["dir/kernel.cu"]])
def test_a_value_that_is_not_the_text_of_a_source_is_refused(source):
    with pytest.raises(UsageError, match="a source is") as caught:
        extension_source.inline(source, (), None)
    assert "load takes paths" in caught.value.hint


def test_the_callers_lists_stay_as_they_are():
    mine = ["int f();"]
    extension_source.inline(mine, [], ["f"])
    assert mine == ["int f();"]


def test_defined_namespaces_are_found_and_taken_from_the_link():
    text = (
        "TORCH_LIBRARY(mine, m) {}\nTORCH_LIBRARY_IMPL(mine, CPU, m) {}\n"
        "TORCH_LIBRARY_IMPL(aten, CPU, m) {}"
    )
    assert extension_source.namespaces([text]) == {"mine"}
    changed = extension_source.register(text, frozenset({"mine"}))
    assert changed.splitlines() == [
        "KERNFORGE_LIBRARY(kernforge_namespace_of_mine, m) {}",
        "KERNFORGE_LIBRARY_IMPL(kernforge_namespace_of_mine, CPU, m) {}",
        "TORCH_LIBRARY_IMPL(aten, CPU, m) {}",
    ]
    assert '= "mine_2"' in extension_source.names_source({"mine": "mine_2"})


def test_module_names_are_read_from_the_sources():
    found = extension_source.module_names(
        ["PYBIND11_MODULE(a, m) {}", "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"]
    )
    assert found == ("a", "TORCH_EXTENSION_NAME")


def test_a_generated_file_says_where_its_sources_are():
    files = extension_source.inline(["int f();", "int g();\nint h();"], RAW, ["f", "g"])
    lines = files["main.cpp"].text.splitlines()
    for part, first in zip(files["main.cpp"].parts, ("int f();", "int g();"), strict=False):
        assert lines[part.first - 1] == first
    assert [part.label for part in files["main.cpp"].parts] == [
        "cpp_sources[0]",
        "cpp_sources[1]",
        "functions",
    ]
    assert 'm.def("f"' in lines[files["main.cpp"].parts[2].first - 1]
    (cuda,) = files["cuda.cu"].parts
    assert cuda.label == "cuda_sources"
    assert files["cuda.cu"].text.splitlines()[cuda.first - 1].startswith("__global__")

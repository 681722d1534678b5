# SPDX-License-Identifier: Apache-2.0
"""What is taken of torch's headers for a source, on headers as torch's generator writes them."""

import pytest

from kernforge.extension import plan, torch_headers
from kernforge.source.includes import closure

HEADERS = {
    "torch/csrc/api/include/torch/types.h": """#pragma once
#include <ATen/ATen.h>
namespace torch {
using namespace at;
constexpr auto kF32 = at::kFloat;
}
""",
    "torch/csrc/autograd/generated/variable_factories.h": """#pragma once
#include <torch/csrc/autograd/variable.h>
namespace torch {
inline at::Tensor empty_like(const at::Tensor & self, at::TensorOptions options = {}) {
  return autograd::make_variable(at::empty_like(self), options.requires_grad());
}
inline at::Tensor rand(at::IntArrayRef size) {
  return autograd::make_variable(at::rand(size), false);
}
}
""",
    "ATen/TensorOperators.h": """#pragma once
#include <ATen/Functions.h>
namespace at { Tensor operators(); }
""",
    "ATen/ops/tensor.h": "#pragma once\n#include <ATen/core/Tensor.h>\n",
    **{
        f"ATen/ops/{name}.h": f"""#pragma once
#include <ATen/Context.h>
#include <ATen/ops/{name}_ops.h>
namespace at {{ inline Tensor {name}({of}) {{ return _ops::{name}(); }} }}
"""
        for name, of in (
            ("empty_like", "const Tensor& x"),
            ("sqrt", "const Tensor& x"),
            ("cat", "const ITensorListRef& x"),
        )
    },
}
SOURCE = """#include <torch/extension.h>
// torch::cat is only said here, and "torch::cat" there
__global__ void k(float* x) { x[0] = sqrt(x[0]); }
torch::Tensor f(torch::Tensor x) { auto y = torch::empty_like(x); return y; }
"""


def cut(source=SOURCE, path="me/a.cu", read=HEADERS.get, **more):
    texts = {path: source, **more}
    found = closure(path, texts, ())
    texts = {p: texts[p] for p in found.files}
    return torch_headers.slim_unit(plan.ExtensionUnit(path=path, texts=texts, closure=found), read)


def test_a_slim_header_replaces_the_include():
    unit = cut()
    text = unit.texts["kernforge-slim/kernforge_torch.h"]
    assert unit.texts["me/a.cu"].splitlines()[0] == '#include "kernforge_torch.h"'
    assert unit.texts["me/a.cu"].splitlines()[1:] == SOURCE.splitlines()[1:]
    assert "inline Tensor sqrt" in text
    assert "Tensor operators();" in text
    assert "constexpr auto kF32" in text
    assert "kernforge::variable(at::empty_like(self), options.requires_grad())" in text
    for left in ("rand", "cat", "make_variable", "Context.h", "Functions.h", "ATen/ATen.h"):
        assert left not in text
    assert set(unit.closure.files) == {"me/a.cu", "kernforge-slim/kernforge_torch.h"}
    assert "ATen/ops/sqrt_ops.h" in unit.closure.foreign
    assert "torch/extension.h" not in unit.closure.foreign
    assert not unit.closure.reaches_python
    assert unit.closure.reaches_torch


def test_lists_python_and_registrations_add_their_headers():
    lists = "torch::Tensor g(torch::Tensor x) { return torch::cat({x, x}); }\n"
    bound = 'PYBIND11_MODULE(a, m) { m.def("f", &f); }\n'
    library = "TORCH_LIBRARY(a, m) {}\n"
    unit = cut(SOURCE + lists + bound + library)
    assert {*("ATen/core/IListRef_inl.h", "torch/csrc/utils/pybind.h", "torch/library.h")} <= set(
        unit.closure.foreign
    )
    assert unit.closure.reaches_python


def test_an_autograd_function_includes_autograds_headers():
    unit = cut(SOURCE + "struct F : torch::autograd::Function<F> {};\n")
    written = unit.texts[torch_headers.PATH]
    assert written.splitlines()[1] == "#define AT_PER_OPERATOR_HEADERS"
    assert "#include <ATen/ops/empty_like.h>" in written
    assert "_ops::empty_like()" not in written
    assert "return autograd::make_variable(at::empty_like(self)" in written
    assert "torch/csrc/autograd/custom_function.h" in unit.closure.foreign


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("<torch/extension.h>", "<vector>"),
        SOURCE + "struct N : torch::nn::Module {};\n",
        SOURCE + "#include <ATen/native/Pool.h>\n",
        SOURCE + "#include NAME\n",
        SOURCE + "auto g(at::Tensor x) { return x.index({0}); }\n",
    ],
)
def test_a_source_that_uses_more_keeps_all_headers(source):
    assert cut(source) is None


def test_unknown_headers_of_torch_are_not_reduced():
    known = {name: text for name, text in HEADERS.items() if "factories" not in name}
    assert cut(read=known.get) is None


def test_a_word_with_a_header_that_is_not_an_operators_is_not_included():
    assert "tensor_ops.h" not in "".join(cut("tensor f(tensor x);\n" + SOURCE).texts.values())

# SPDX-License-Identifier: Apache-2.0
"""What is taken of torch's headers for a source, on headers as torch's generator writes them."""

import re

import pytest

from kernforge.source import torch_headers
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
    "c10/Macros.h": "#define C10_SIZE 64\n",
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


class Headers(dict):
    read = dict.get

    def defines(self, macros):
        return any(
            re.search(rf"#define {name}\b", text) for name in macros for text in self.values()
        )


def cut(source=SOURCE, known=HEADERS):
    """The source and the slim header; None if it keeps all of torch's."""
    texts = {"me/a.cu": source}
    if not torch_headers.may_be_slim(closure("me/a.cu", texts, ())):
        return None
    headers = Headers(known)
    slim = torch_headers.slim_texts(texts, headers.read, headers.defines)
    return slim and (slim[0]["me/a.cu"], slim[0]["kernforge-slim/kernforge_torch.h"])


def test_a_slim_header_replaces_the_include():
    source, text = cut()
    assert source.splitlines()[0] == '#include "kernforge_torch.h"'
    assert source.splitlines()[1:] == SOURCE.splitlines()[1:]
    assert "inline Tensor sqrt" in text
    assert "#include <ATen/ops/sqrt_ops.h>" in text
    assert "Tensor operators();" in text
    assert "constexpr auto kF32" in text
    assert "kernforge::variable(at::empty_like(self), options.requires_grad())" in text
    for left in ("rand", "cat", "make_variable", "Context.h", "Functions.h", "ATen/ATen.h"):
        assert left not in text


def test_lists_python_and_registrations_add_their_headers():
    lists = "torch::Tensor g(torch::Tensor x) { return torch::cat({x, x}); }\n"
    bound = 'PYBIND11_MODULE(a, m) { m.def("f", &f); }\n'
    library = "TORCH_LIBRARY(a, m) {}\n"
    _, text = cut(SOURCE + lists + bound + library)
    for name in ("ATen/core/IListRef_inl.h", "torch/csrc/utils/pybind.h", "torch/library.h"):
        assert f"#include <{name}>" in text


def test_an_autograd_function_includes_autograds_headers():
    _, text = cut(SOURCE + "struct F : torch::autograd::Function<F> {};\n")
    assert text.splitlines()[1] == "#define AT_PER_OPERATOR_HEADERS"
    assert "#include <ATen/ops/empty_like.h>" in text
    assert "_ops::empty_like()" not in text
    assert "return autograd::make_variable(at::empty_like(self)" in text
    assert "#include <torch/csrc/autograd/custom_function.h>" in text


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace("<torch/extension.h>", "<vector>"),
        SOURCE + "struct N : torch::nn::Module {};\n",
        SOURCE + "#include <ATen/native/Pool.h>\n",
        SOURCE + "#include NAME\n",
        SOURCE + "auto g(at::Tensor x) { return x.index({0}); }\n",
        SOURCE + "#if defined(X) || \\\n  C10_SIZE > 32\n#endif\n",
    ],
)
def test_a_source_that_uses_more_keeps_all_headers(source):
    assert cut(source) is None


def test_unknown_headers_of_torch_are_not_reduced():
    known = {name: text for name, text in HEADERS.items() if "factories" not in name}
    assert cut(known=known) is None


def test_macros_that_every_header_has_are_tested_with_slim_ones():
    conditions = "#define MINE 1\n#if MINE && __CUDA_ARCH__ && USE_ROCM\n#endif\n"
    _, text = cut(SOURCE + conditions + "#if TORCH_VERSION_MAJOR >= 2\n#endif\n")
    assert "#include <torch/version.h>" in text
    assert "Python.h" not in text
    _, text = cut(SOURCE + "#ifdef PY_VERSION_HEX\n#endif\n")
    assert "#include <Python.h>" in text


def test_a_word_with_a_header_that_is_not_an_operators_is_not_included():
    assert "tensor_ops.h" not in "".join(cut("tensor f(tensor x);\n" + SOURCE))

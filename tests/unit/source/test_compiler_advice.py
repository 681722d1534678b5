# SPDX-License-Identifier: Apache-2.0
"""Errors of tutorials are answered with advice; the messages are of real compilers."""

import pytest

from kernforge.source.compiler_advice import advice


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ("a.cpp:1:10: fatal error: cuda_runtime.h: No such file or directory", "with_cuda=True"),
        (
            (
                "cpp_sources: In function 'void i(pybind11::module_&)':\n"
                "functions:1:40: error: 'f' was not declared in this scope"
            ),
            "torch::Tensor f(...);",
        ),
        (
            "generated:4:1: error: redefinition of 'PyObject* PyInit_e18()'",
            "functions= writes PYBIND11_MODULE",
        ),
        (
            (
                "ptxas k.ptx, line 21; error   : Instruction 'wgmma.fence' not supported on "
                ".target 'sm_90'"
            ),
            "wgmma.fence needs 9.0a",
        ),
        ("a.cpp:3:1: error: '__global__' does not name a type", ".cu file"),
        (
            'k.cu(4): error: namespace "at::cuda" has no member "getCurrentCUDAStream"',
            "#include <ATen/cuda/CUDAContext.h>",
        ),
        (
            (
                'k.cu(16): error: no suitable conversion function from "const '
                'at::DeprecatedTypeProperties" to "c10::ScalarType" exists'
            ),
            "x.scalar_type()",
        ),
        (
            'k.cu(9): error: no suitable conversion function from "__half" to "float" exists',
            "-U__CUDA_NO_HALF_OPERATORS__",
        ),
    ],
)
def test_errors_of_tutorials_have_advice(output, words):
    assert words in advice(output)


def test_an_unknown_error_has_no_advice():
    assert advice("a.cpp:1:1: error: expected ';' before 'return'") == ""
    # A function whose declaration has a mistake is not undeclared.
    output = "cpp_sources:1:1: error: 'tensor' does not name a type\n"
    assert advice(f"{output}functions:1:40: error: 'f' was not declared in this scope") == ""
    # A type of the author's own that has half numbers is not a half number.
    vector = (
        'error: no suitable user-defined conversion from "Vector<__half, 8>" to "Vector<__half, 1>"'
    )
    assert advice(f"k.cu(40): {vector} exists\n") == ""

# SPDX-License-Identifier: Apache-2.0
"""Advice on the compiler errors that tutorials lead to.

Most are names that torch once had: a tutorial is older than the torch that is installed. The others
come of a source in the wrong place. The messages are those of GCC, of Clang and of nvcc's front
end.
"""

from __future__ import annotations

import re

_ADVICE = {
    r"fatal error: cu\w+\.h: No such file": (
        "CUDA's headers are there for load_inline(with_cuda=True), for CUDAExtension, and in a "
        'section of build.toml with backend = "cuda"'
    ),
    # Where it is the first error: what is declared with a mistake is not declared either.
    r"(?s:\A(?:(?!error:).)*)functions:\d+:\d+: error: (?:'(?P<name>\w+)' was not declared"
    r"|use of undeclared identifier '(?P<clang>\w+)')": (
        "cpp_sources must declare each name of functions=, also what cuda_sources defines: "
        "torch::Tensor {name}(...);"
    ),
    r"error: redefinition of '[^']*\bPyInit_\w+": (
        "functions= writes PYBIND11_MODULE: leave functions= out, or the PYBIND11_MODULE of the"
        " source"
    ),
    r"error: (?:'__(?:global|device|shared)__' (?:does not name a type|was not declared)"
    r"|unknown type name '__(?:global|device|shared)__')": (
        "a C++ compiler reads no kernels: they belong into a .cu file, or into cuda_sources"
    ),
    r"error: [^\n]*\bgetCurrentCUDAStream\b": (
        "#include <ATen/cuda/CUDAContext.h> declares at::cuda::getCurrentCUDAStream()"
    ),
    r"error: [^\n]*DeprecatedTypeProperties": (
        "torch has x.scalar_type() where tutorials have x.type(), as in "
        "AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), ...)"
    ),
    r"Unresolved extern function|requires separate compilation mode"
    r"|undefined reference to `__cudaRegisterLinked": (
        "a kernel that calls a __device__ function of another .cu file, or launches a kernel, "
        "is relocatable device code: add -rdc=true to nvcc's flags (extra_cuda_cflags of load, "
        "extra_compile_args of setup.py), and device code is linked too"
    ),
    r"Instruction '(?P<name>[\w.]+)' not supported on \.target 'sm_(?:90|100)'": (
        "{name} needs 9.0a, or 10.0a of a later GPU: name it in TORCH_CUDA_ARCH_LIST, or in "
        "build.toml's cuda-capabilities"
    ),
    r'error: no (?:operator "[^\n]*(?:\n[^\n]*operand types are:[^\n]*)?'
    r'|suitable [^\n]*"(?:const )?)'
    r"(?:__half|__nv_bfloat16|\bhalf|nv_bfloat16)": (
        "torch switches the operators and conversions of __half and __nv_bfloat16 off: add "
        "-U__CUDA_NO_HALF_OPERATORS__ (-U__CUDA_NO_HALF_CONVERSIONS__, "
        "-U__CUDA_NO_HALF2_OPERATORS__, -U__CUDA_NO_BFLOAT16_CONVERSIONS__) to nvcc's flags, or"
        " call __hadd, __half2float"
    ),
}
"""Advice by the pattern of a message; ``{name}`` stands for the text of its first group."""


def advice(output: str) -> str:
    """Advice on a compiler's output; empty if the error is unknown.

    Args:
        output: the messages, with the names that the user gave the sources.
    """
    for pattern, text in _ADVICE.items():
        if match := re.search(pattern, output):
            return text.format(name=next(filter(None, match.groups()), ""))
    return ""

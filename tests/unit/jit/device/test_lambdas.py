# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.build.plan import flags
from kernforge.jit.device import lambdas

ARGV = (
    *("%{cuda-13.0}/bin/nvcc", "-c", "-std=c++20", "-O3", "-DNDEBUG"),
    *("--expt-relaxed-constexpr", "--expt-extended-lambda", *flags.NVCC_DEFINES),
    *("-Xcompiler", "-fPIC,-fno-gnu-unique", "-gencode", "arch=compute_90,code=sm_90", "-Iinc"),
    *("a.cu", "-o", "out.o"),
)
SOURCE = """#include <atomic>
#include <cuda_fp16.h>
#include "../inc/a.h"
__global__ void k(float* x) { x[0] = std::numeric_limits<float>::max(); }
"""
TEXTS = {"work/a.cu": SOURCE, "work/inc/a.h": "#pragma once\n#include <cstdint>\n"}


def test_the_flag_is_left_out_and_nothing_else():
    kept = lambdas.without_flag(ARGV, TEXTS)
    assert kept == tuple(word for word in ARGV if word != "--expt-extended-lambda")
    assert lambdas.without_flag(kept, TEXTS) is None


@pytest.mark.parametrize(
    "more",
    [
        *(["-g"], ["-G"], ["-lineinfo"], ["-M"], ["-v"], ["-Xcompiler", "-g"], ["-Xptxas=-v"]),
        *(["-include", "b.h"], ["-isystem", "/torch/include"], ["-I/elsewhere"], ["-rdc=true"]),
    ],
)
def test_flags_that_may_make_a_difference_keep_it(more):
    assert lambdas.without_flag((*ARGV[:2], *more, *ARGV[2:]), TEXTS) is None


@pytest.mark.parametrize(
    "line",
    [
        "using namespace std;",
        "int n = std::ranges::max(a);",
        "std::function<int()> f;\n#include <cub/cub.cuh>",
        "#include <thrust/sort.h>",
        "#include <cooperative_groups.h>",
        "#include HEADER",
        '#include "missing.h"',
        "#ifdef __CUDACC_EXTENDED_LAMBDA__",
        "static_assert(!__nv_is_extended_device_lambda_closure_type(int));",
        "#if __cpp_lib_ranges",
        "#ifdef _GLIBCXX_VECTOR",
        "#if __has_include(<functional>)",
    ],
)
@pytest.mark.parametrize("path", TEXTS)
def test_a_file_for_which_it_may_make_a_difference_keeps_it(line, path):
    assert lambdas.without_flag(ARGV, {**TEXTS, path: f"{TEXTS[path]}{line}\n"}) is None


def test_names_in_comments_and_strings_make_none():
    text = SOURCE + '// std::ranges\nconst char* s = "using namespace std";\n'
    assert lambdas.without_flag(ARGV, {**TEXTS, "work/a.cu": text}) is not None

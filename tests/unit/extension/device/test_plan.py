# SPDX-License-Identifier: Apache-2.0
import dataclasses

import pytest
from support.locks import table, tree

from kernforge.artifact.version import Version2
from kernforge.extension import plan as jit_plan
from kernforge.extension.device import swap
from kernforge.source.includes import closure
from kernforge.toolchain.lockfile import Lock, LockedCompiler

MACHINE = jit_plan.ExtensionMachine(
    torch=Version2(2, 11),
    sonames=(),
    cuda=Version2(13, 0),
    archs=("-gencode", "arch=compute_90,code=sm_90"),
    lock=Lock(
        platform="x86_64-linux",
        compilers={"cxx": LockedCompiler(identity="g++ 13", target="x86_64-linux-gnu")},
        trees=table(
            tree("cuda", "13.0", digest="kit"),
            tree("torch", "2.11", digest="torch"),
            tree("python", release="3.12", digest="python"),
        ),
    ),
    cpu="x86_64",
)
HEADER = "#pragma once\n__device__ inline float f(float x) { return x; }\n"
SOURCE = """#include <cstdint>
#include "inc/f.h"
__global__ void k(float* x) { x[0] = f(x[0]); }
void launch(float* x) { k<<<1, 1>>>(x); }
"""


def planned(source=SOURCE, header=HEADER, flags=(), archs=None, path="home/me/a.cu"):
    texts = {path: source, "home/me/inc/f.h": header}
    found = closure(path, texts, ())
    read = {p: texts[p] for p in found.files}
    unit = jit_plan.ExtensionUnit(path=path, texts=read, closure=found)
    module = jit_plan.Extension(name="a", units=(unit,), cuda_cflags=tuple(flags), with_cuda=True)
    machine = MACHINE if archs is None else dataclasses.replace(MACHINE, archs=archs)
    (made,) = jit_plan.plan_extensions([module], machine)
    (cuda,) = made.cuda
    return cuda, made


def part(*args, **more):
    return swap.device_part(*planned(*args, **more))


def stages(*args, **more):
    unit, module = planned(*args, **more)
    return swap.compile_device(unit, {}, module)[0]


def test_units_that_differ_in_device_code_share_the_hosts_part():
    edits = ({}, {"source": SOURCE.replace("f(x[0])", "2 * f(x[0])")})
    edits = (*edits, {"header": HEADER.replace("return x;", "return -x;")})
    assert len({part(**edit).host for edit in edits}) == 1
    assert len({stages(**edit).key for edit in edits}) == 3


@pytest.mark.parametrize(
    "more",
    [
        {"source": SOURCE.replace("<<<1, 1>>>", "<<<2, 1>>>")},
        {"header": HEADER + "int n;\n"},
        {"flags": ["-DN=1"]},
        {"archs": ("-gencode", "arch=compute_80,code=sm_80")},
        {"path": "home/me/b.cu"},
    ],
)
def test_the_hosts_part_holds_all_else_that_makes_the_object(more):
    one, other = part(), part(**more)
    assert one.host != other.host


TORCH = "#include <torch/extension.h>\n"
HOSTS = "at::Tensor launch(at::Tensor x);\nTORCH_LIBRARY(a, m) {\n  m.def(launch);\n}\n"


def test_device_text_keeps_lines_without_torch_and_host_functions():
    bare = part(TORCH + "#include <cuda.h>\n" + SOURCE + HOSTS).bare
    kernel = "__global__ void k(float* x) { x[0] = f(x[0]); }"
    assert bare["home/me/a.cu"].splitlines() == [
        *("#pragma nv_diag_suppress 177", "#include <stdint.h>"),
        *("#include <cstdint>", '#include "inc/f.h"', kernel, "", "", "", "", ""),
    ]
    assert bare["home/me/inc/f.h"] == HEADER


@pytest.mark.parametrize(
    ("kept", "line"),
    [
        (True, "constexpr int twice(int x) { return 2 * x; }"),
        (True, "MARKED float g(float x) { return x; }"),
        (True, "template __global__ void t<int>(int*);"),
        (True, "using mine::f;"),
        (False, "template <class T> T g(T x) { return x; }"),
    ],
)
def test_device_text_keeps_all_that_a_gpu_might_need(kept, line):
    assert (line in part(TORCH + SOURCE + line).bare["home/me/a.cu"]) is kept


@pytest.mark.parametrize(
    "source",
    [
        SOURCE,  # there is nothing to gain
        TORCH + SOURCE.replace("x[0]);", "c10::Half(x[0]));"),
        TORCH + "#ifdef TORCH_API\n#define N 1\n#endif\n" + SOURCE,
        TORCH + "#include <thrust/complex.h>\n" + SOURCE,
    ],
)
def test_device_code_that_may_need_torchs_headers_keeps_them(source):
    assert not part(source).bare


@pytest.mark.parametrize(
    ("flags", "archs"),
    [
        (("-rdc=true",), None),
        (("--relocatable-device-code", "true"), None),
        (("-dlto",), None),
        (("-arch=sm_90",), None),
        ((), ("-gencode", "arch=compute_90,code=[compute_90,sm_90]")),
        ((), ("-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=sm_90")),
    ],
)
def test_an_object_with_more_than_one_piece_of_code_has_no_part(flags, archs):
    assert part(flags=flags, archs=archs) is None

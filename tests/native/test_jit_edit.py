# SPDX-License-Identifier: Apache-2.0
"""Edits of device code: which are compiled alone, and that what comes of it is what nvcc makes.

No GPU is needed: the machine code in the modules is compared.
"""

import os
import shutil
from pathlib import Path

import pytest
from support import jit_homes, scaffolds
from support.jit_homes import device_code, same_code, same_module, ways

import kernforge
from kernforge.binary import cubin
from kernforge.errors import BuildError
from kernforge.extension.device import nvcc_stages
from kernforge.system.process import Command, run
from kernforge.toolchain.installed import find_cuda

pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

SOURCE = """
#include "half_of.h"
__device__ float more(float x) { return x + 1; }
__global__ void plain(float* x, long n) {
  if (threadIdx.x < n) x[threadIdx.x] = half_of(x[threadIdx.x]);
}
template <typename T, int N>
__global__ void typed(T* x) { x[threadIdx.x] = T(N); }
extern "C" int launch(float* x, int* y) {
  plain<<<1, 32>>>(x, 32);
  typed<float, 3><<<1, 32>>>(x);
  typed<int, 4><<<1, 32>>>(y);
  return cudaGetLastError();
}
"""
HEADER = """
#pragma once
__device__ inline float half_of(float x) { return x / 2; }
"""


home = jit_homes.home


@pytest.fixture(autouse=True)
def arch(home, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")


@pytest.fixture
def ask(tmp_path, kept_home, monkeypatch):
    """Write both files and load them; the second time as if for the first time on a new machine."""
    places = iter(range(100))

    def write_and_load(source=SOURCE, header=HEADER, *, alone=False, flags=()):
        (tmp_path / "half_of.h").write_text(header)
        (tmp_path / "edited.cu").write_text(source)
        with monkeypatch.context() as patch:
            if alone:
                jit_homes.make(tmp_path / f"alone-{next(places)}", kept_home, patch)
                jit_homes.forget(patch)
            path = kernforge.load(
                "edited", [str(tmp_path / "edited.cu")], extra_cuda_cflags=list(flags),
                is_python_module=False,
            )  # fmt: skip
        with open(path, "rb") as stream:  # noqa: PTH123
            return stream.read()

    return write_and_load


FUNCTORS = """
template <class T>
struct Forward {
  using type = T;
  const T* in[1];
  T alpha;
  __host__ __device__ explicit Forward(const T* x, T by) : in{x}, alpha(by) {}
  __device__ __forceinline__ T operator()(const T (&given)[1]) const { return given[0] * alpha; }
  template <class U> __device__ T plus(U more) const { return alpha + T(more); }
  __device__ operator int() const { return 5; }
  __host__ __device__ T both() const { return alpha + 7; }
};
template <class Op>
__global__ void apply(Op op, typename Op::type* x) {
  typename Op::type given[1] = {x[threadIdx.x]};
  x[threadIdx.x] = op(given) + op.plus(int(op)) + op.both();
}
extern "C" int launch(float* x, int* y) {
  apply<<<1, 32>>>(Forward<float>(x, 2.0f), x);
  apply<<<1, 32>>>(Forward<int>(y, 2), y);
  return int(Forward<float>(x, 2.0f).both());
}
"""


@pytest.mark.parametrize(
    ("source", "edit"),
    [
        (SOURCE, ("half_of(x[threadIdx.x])", "more(sinf(x[threadIdx.x]))")),
        (SOURCE, ("return x + 1;", "return x +\n    2;")),
        (SOURCE, ("= T(N);", "= T(N + blockIdx.x);")),
        (SOURCE, ("return x / 2;", "return x / 3;")),  # of the header
        (FUNCTORS, ("given[0] * alpha", "given[0] > 0 ? given[0] * alpha : T(0)")),
        (FUNCTORS, ("alpha + T(more)", "alpha - T(more)")),
        (FUNCTORS, ("return 5", "return 55")),
    ],
)
def test_an_edit_of_device_code_is_nvccs_own_code(ask, home, source, edit):
    ask(source)
    edited = ask(*(texts := [text.replace(*edit) for text in (source, HEADER)]))
    assert ways(home) == (1, 1)
    assert same_module(edited, ask(*texts, alone=True))


DECLARED = HEADER + "__host__ __device__ float more(float x);\n"
CALLED = SOURCE.replace("return cudaGetLastError();", "return int(more(1));")


@pytest.mark.parametrize(
    ("source", "header", "edit"),
    [
        (FUNCTORS, HEADER, ("alpha + 7", "alpha + 8")),
        (CALLED, DECLARED, ("x + 1;", "x + 2;")),
        (SOURCE, HEADER, ("<<<1, 32>>>(x, 32)", "<<<2, 32>>>(x, 32)")),
        (SOURCE, HEADER, ("(float* x, long n)", "(float* x, int n)")),
        # A variable is registered.
        (SOURCE, HEADER, ("if (threadIdx.x < n)", "static int old; if (old++ < n)")),
    ],
)
def test_an_edit_that_the_host_may_see_is_compiled_as_a_whole(ask, home, source, header, edit):
    ask(source, header)
    edited = ask(text := source.replace(*edit), header)
    assert ways(home)[0] == 0
    assert same_module(edited, ask(text, header, alone=True))


def test_ptxas_remarks_on_edited_code_are_reported(ask, home, tmp_path, capfd):
    flags = ["-Xptxas=-v"]
    ask(flags=flags)
    assert "registers" not in capfd.readouterr().err
    source = SOURCE.replace("return x + 1;", "return x + 2;")
    (tmp_path / "edited.cu").write_text(source)
    kernforge.load(
        "edited",
        [tmp_path / "edited.cu"],
        extra_cuda_cflags=flags,
        is_python_module=False,
        verbose=True,
    )
    assert ways(home) == (1, 1)
    assert "Used " in (said := capfd.readouterr().err)
    assert "registers" in said


TUTORIAL = """
#include <torch/extension.h>
#include "half_of.h"
__global__ void plain(const float* x, float* y) { y[threadIdx.x] = half_of(x[threadIdx.x]); }
torch::Tensor halved(torch::Tensor x) {
  auto y = torch::empty_like(x);
  plain<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("half", &halved); }
"""


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param("sinf(half_of(x[threadIdx.x]))", id="without torch's headers"),
        pytest.param("float(c10::BFloat16(x[threadIdx.x]))", id="with them after all"),
    ],
)
def test_an_edit_beside_torchs_types_is_nvccs_own_code(ask, home, edit):
    ask(TUTORIAL)
    edited = ask(text := TUTORIAL.replace("half_of(x[threadIdx.x])", edit))
    assert ways(home) == (1, 1)
    code = device_code(edited)
    other = cubin.named_like(device_code(ask(text, alone=True)), code)
    assert cubin.kernels(code) == cubin.kernels(other)
    assert cubin.variables(code) == cubin.variables(other)
    assert same_code(code, other, ordered=False)


def test_device_code_of_another_process_can_be_edited(ask, home, monkeypatch):
    ask()
    jit_homes.forget(monkeypatch)
    ask()
    edited = ask(SOURCE.replace("return x + 1;", "return x + 9;"))
    assert ways(home) == (1, 1)
    jit_homes.forget(monkeypatch)
    before = sorted((home / "store" / "actions").glob("??/" + "?" * 64))
    assert ask(SOURCE.replace("return x + 1;", "return x + 9;")) == edited
    assert sorted((home / "store" / "actions").glob("??/" + "?" * 64)) == before


def test_an_error_in_device_code_names_the_users_line(ask, tmp_path):
    ask()
    with pytest.raises(BuildError, match=rf"{tmp_path}/edited.cu\(3\): error: .*nonsense"):
        ask(SOURCE.replace("return x + 1;", "return nonsense;"))
    assert ask(SOURCE)


def test_unnamed_namespaces_keep_their_names(ask, home):
    """Nvcc names them after the path of the directory in which it runs."""
    text = SOURCE.replace("__global__ void plain", "namespace { __global__ void plain").replace(
        "template <", "}\ntemplate <"
    )
    ask(text)
    edited = text.replace("return x + 1;", "return x + 2;").replace("half_of(x[", "more(x[")
    one = ask(edited)
    assert ways(home) == (1, 1)
    other = ask(edited, alone=True)
    assert device_code(one) != device_code(other)
    assert same_code(cubin.named_like(device_code(other), device_code(one)), device_code(one))


def sources(directory):
    """The sources of a project's CUDA kernel, and the headers that kernforge brings."""
    wanted = {".cu", ".cuh", ".h"}
    own = {p.name: p.read_text() for p in directory.iterdir() if p.suffix in wanted}
    include = Path(kernforge.__file__).parent / "include"
    brought = include.glob("csrc/kernforge/*.*h")
    return own | {str(p.relative_to(include)): p.read_text() for p in brought}


LAMBDAS = """
template <class F> __device__ __noinline__ float apply(F f, float x) { return f(x); }
template <class F> __global__ void kernel(F f, float* x) {
  x[0] = apply([f](float v) { return f(v) + 1; }, x[0]);
}
struct Twice { __device__ float operator()(float x) const { return 2 * x; } };
void launch(float* x) {
  auto check = [](const float* p) { return p != nullptr; };
  if (check(x)) kernel<<<1, 1>>>(Twice{}, x);
}
"""
EXTENDED = LAMBDAS.replace("Twice{}", "[=] __device__ (float v) { return 3 * v; }")


UNITS = {
    "a kernel": {"a.cu": SOURCE, "half_of.h": HEADER},
    "a mistake": {"a.cu": SOURCE.replace("return x", "return nonsense"), "half_of.h": HEADER},
    "lambdas": {"a.cu": LAMBDAS},
    "extended lambdas": {"a.cu": EXTENDED},
    "a mistake in a functor": {"a.cu": LAMBDAS.replace("2 * x", "y")},
    "a new project": {},
}


@pytest.mark.parametrize("which", UNITS)
def test_our_stages_give_nvccs_bytes_and_messages(tmp_path, which):
    """In parallel, and without the flag for lambdas where there is none."""
    nvcc = find_cuda(os.environ)
    if nvcc is None:
        pytest.skip("there is no installed toolkit")
    scaffolds.scaffold("toy", dest=tmp_path / "toy")
    files = UNITS[which] or sources(tmp_path / "toy")
    (source,) = (name for name in files if name.endswith(".cu"))
    top = tmp_path / "work"  # one place for both: names of what is unnamed come from the path
    (tmp_path / "tmp").mkdir()
    outcomes = []
    for runner in (run, nvcc_stages.run_stages):
        shutil.rmtree(top, ignore_errors=True)
        top.mkdir()
        (top / "csrc" / "kernforge").mkdir(parents=True)
        for name, text in files.items():
            (top / name).write_text(text)
        argv = (
            *(f"{nvcc}/bin/nvcc", "-c", "-O3", "-std=c++20", "--expt-relaxed-constexpr", "-Icsrc"),
            *("--expt-extended-lambda", "-DCUDA_KERNEL", "-gencode", "arch=compute_90,code=sm_90"),
            *("--keep", "--keep-dir=../tmp", source, "-o", "out.o"),
        )
        done = runner(Command(argv=argv, cwd=top))
        made = (top / "out.o").read_bytes() if done.returncode == 0 else None
        outcomes.append((done.returncode, made, done.stderr.strip()))
    assert outcomes[0] == outcomes[1]
    assert (outcomes[0][1] is None) == ("mistake" in which)


def test_debug_information_keeps_line_numbers(ask, home):
    flags = ["-lineinfo"]
    ask(flags=flags)
    moved = SOURCE.replace("return x + 1;", "return x +\n    2;")
    ask(moved, flags=flags)
    assert ways(home) == (0, 0)
    ask(moved.replace("2;", "3;"), flags=flags)
    assert ways(home) == (1, 1)

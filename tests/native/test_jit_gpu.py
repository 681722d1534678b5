# SPDX-License-Identifier: Apache-2.0
"""Modules of CUDA sources that are compiled in this process, run on the GPU.

    pytest tests/native/test_jit_gpu.py

on a machine with an installed CUDA toolkit of torch's major version; it reads no network there.
"""

import subprocess
import sys

import pytest
from support import jit_homes

import kernforge

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.native,
    pytest.mark.torch,
    pytest.mark.usefixtures("home"),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU"),
]

KERNEL = """
__global__ void scale_kernel(const float* x, float* y, float a, long n) {
  long i = blockIdx.x * long(blockDim.x) + threadIdx.x;
  if (i < n) y[i] = %s;
}
"""
LAUNCH = """
void scale_launch(const float* x, float* y, float a, long n, void* stream) {
  scale_kernel<<<(n + 255) / 256, 256, 0, static_cast<cudaStream_t>(stream)>>>(x, y, a, n);
}
"""
STABLE = """
#define USE_CUDA 1
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
void scale_launch(const float* x, float* y, float a, long n, void* stream);
Tensor scale(const Tensor& x, double a) {
  Tensor y = torch::stable::empty_like(x);
  void* stream = nullptr;
  aoti_torch_get_current_cuda_stream(x.get_device_index(), &stream);
  scale_launch(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()),
               float(a), x.numel(), stream);
  return y;
}
STABLE_TORCH_LIBRARY(jit_gpu, m) { m.def("scale(Tensor x, float a) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(jit_gpu, CUDA, m) { m.impl("scale", TORCH_BOX(&scale)); }
"""
TUTORIAL = """
torch::Tensor scale(torch::Tensor x, double a) {
  auto y = torch::empty_like(x);
  long n = x.numel();
  scale_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), float(a), n);
  return y;
}
"""
MODULE = """
#include <torch/extension.h>
void scale_launch(const float* x, float* y, float a, long n, void* stream);
torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_cuda(), "x lies on ", x.device());
  auto y = torch::empty_like(x);
  scale_launch(x.data_ptr<float>(), y.data_ptr<float>(), float(a), x.numel(), nullptr);
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scale", &scale); }
"""


home = jit_homes.home


@pytest.fixture
def x():
    return torch.arange(1000, device="cuda", dtype=torch.float32)


def stable(body):
    kernforge.load_inline("jit_gpu", STABLE, KERNEL % body + LAUNCH, is_python_module=False)
    return torch.ops.jit_gpu.scale


def swapped(home):
    return len(list((home / "store" / "actions").glob("??/*/code.fatbin")))


def test_edited_device_code_runs_and_what_was_made_before_stays(x, home):
    first = stable("a * x[i]")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        first(x, 2.0)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        seen = first(x, 2.0)
    for number in range(1, 6):
        edited = stable(f"a * x[i] + {number}")
        assert torch.equal(edited(x, 2.0), 2 * x + number)
    assert swapped(home) >= 5
    seen.zero_()
    graph.replay()
    torch.cuda.synchronize()
    assert torch.equal(seen, 2 * x)
    assert torch.equal(first(x, 3.0), 3 * x)


def test_a_tutorials_source_with_functions(x, home):
    """Torch's headers in the CUDA source: an edit of the kernel's body leaves its host code."""

    def ask(body):
        declared = "torch::Tensor scale(torch::Tensor x, double a);"
        return kernforge.load_inline(
            "jit_tutorial", declared, KERNEL % body + TUTORIAL, functions=["scale"]
        )

    module = ask("a * x[i]")
    assert torch.equal(module.scale(x, 2.0), 2 * x)
    edited = ask("a * x[i] - 1")
    assert torch.equal(edited.scale(x, 2.0), 2 * x - 1)
    assert torch.equal(module.scale(x, 2.0), 2 * x)
    assert swapped(home) == 1


def test_a_pybind11_module_beside_raw_cuda(x, tmp_path):
    cuda, main = tmp_path / "kernel.cu", tmp_path / "main.cpp"
    main.write_text(MODULE)
    cuda.write_text(KERNEL % "a * x[i]" + LAUNCH)
    ask = lambda: kernforge.load("jit_pybind", [str(main), str(cuda)])  # noqa: E731
    module = ask()
    assert torch.equal(module.scale(x, 2.0), 2 * x)
    with pytest.raises(RuntimeError, match="x lies on cpu"):
        module.scale(x.cpu(), 2.0)
    cuda.write_text(KERNEL % "a * x[i] + 7" + LAUNCH.replace("256", "128"))
    assert torch.equal(ask().scale(x, 2.0), 2 * x + 7)
    assert torch.equal(module.scale(x, 2.0), 2 * x)


# -- kernel projects -----------------------------------------------------------------------


@pytest.fixture
def project(tmp_path, request):
    """What ``kernforge new`` writes, with a function that edits its CUDA source and loads it.

    A comment keeps tests apart: a process loads the same sources from one place only.
    """
    subprocess.run([sys.executable, "-m", "kernforge", "new", "toy"], cwd=tmp_path, check=True)
    source = tmp_path / "toy" / "toy.cu"
    first = f"{source.read_text()}// {request.node.name}\n"

    def ask(new="* scale;"):
        assert "* scale;" in first
        source.write_text(first.replace("* scale;", new))
        return kernforge.load(tmp_path / "toy")

    return ask


def test_a_projects_device_code_is_compiled_alone(x, home, project):
    first = project()
    assert torch.equal(first.toy(x, 2.0), 2 * x)
    for number in (1, 2):
        edited = project(f"* scale + {number};")
        assert torch.equal(edited.toy(x, 2.0), 2 * x + number)
    assert len(list((home / "store" / "actions").glob("??/*/unit.cubin"))) == 2
    assert project("* scale + 2;") is edited
    assert torch.equal(project().toy(x, 3.0), 3 * x)
    assert torch.equal(edited.toy(x, 3.0), 3 * x + 2)


def test_fifty_builds_take_no_memory_of_the_gpu_but_their_code(x):
    """What the driver keeps of a module is its code, in blocks of 2 MiB."""
    stable("a * x[i]")(x, 2.0)
    for number in range(20):
        stable(f"a * x[i] + {number}")(x, 2.0)
    torch.cuda.synchronize()
    before = torch.cuda.mem_get_info()[0]
    for number in range(20, 70):
        stable(f"a * x[i] + {number}")(x, 2.0)
    torch.cuda.synchronize()
    taken = (before - torch.cuda.mem_get_info()[0]) / 50 / 2**20
    assert taken <= 4  # MiB each

# SPDX-License-Identifier: Apache-2.0
"""The headers that kernforge brings: each compiles by itself, and the element-wise ones are right.

    pytest tests/native/test_headers.py

runs the CUDA part on a machine with a GPU and an installed CUDA toolkit; it reads no network there.
"""

import os
import subprocess
from pathlib import Path

import pytest
from support import jit_homes

import kernforge
from kernforge.toolchain.installed import find_cuda

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

INCLUDE = Path(kernforge.__file__).parent / "include"
SEARCH = (f"-I{INCLUDE}/csrc", f"-I{INCLUDE}/torch-ext")
TORCH = Path(torch.__file__).parent / "include"
MANIFEST = """
[general]
name = "header-probe"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"

[kernel.cpu]
backend = "cpu"
depends = ["torch"]
src = ["probe_cpu.cpp"]

[kernel.cuda]
backend = "cuda"
depends = []
src = ["probe.cu"]
"""
PROBE = """
#pragma once
#include <cstdint>
#include "kernforge/dtype.h"
#if defined(CUDA_KERNEL) || defined(__CUDACC__)
#include <cuda_runtime_api.h>
cudaError_t probe(kernforge::DType dtype, int64_t inputs, int64_t policy, const void* a,
                  const void* b, const void* c, void* out, int64_t n, cudaStream_t stream);
#else
void probe(kernforge::DType dtype, int64_t inputs, const void* a, const void* b, const void* c,
           void* out, int64_t n);
#endif
// Each input counts otherwise, so that none can stand in for another.
struct Probe {
  template <class W>
  KERNFORGE_HOST_DEVICE W operator()(W a) const { return a + 1; }
  template <class W>
  KERNFORGE_HOST_DEVICE W operator()(W a, W b) const { return a - 2 * b; }
  template <class W>
  KERNFORGE_HOST_DEVICE W operator()(W a, W b, W c) const { return a - 2 * b + 4 * c; }
};
"""
CPU = """
#include "kernforge/elementwise.h"
#include "probe.h"
void probe(kernforge::DType dtype, int64_t inputs, const void* a, const void* b, const void* c,
           void* out, int64_t n) {
  kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    if (inputs == 1) return kernforge::elementwise<T>(Probe{}, n, out, a);
    if (inputs == 2) return kernforge::elementwise<T>(Probe{}, n, out, a, b);
    kernforge::elementwise<T>(Probe{}, n, out, a, b, c);
  });
}
"""
CUDA = """
#include "kernforge/elementwise.cuh"
#include "probe.h"
namespace {
template <int kPolicy>
struct Selector {
  template <class T, int kInputs, class Launch>
  static cudaError_t select(int64_t bytes, const kernforge::Device& device, const Launch& launch) {
    constexpr int kVector = kernforge::kVectorLength<T>;
    const bool known = device.compute_capability >= 75 && device.multiprocessors > 0;
    if (bytes <= 0 || !known) return cudaErrorInvalidValue;
    if constexpr (kPolicy == 1) {
      return launch(kernforge::ElementwisePolicy<256, kVector / 2, kVector / 2, uint32_t>{});
    } else {
      return launch(kernforge::ElementwisePolicy<64, 4 * kVector, kVector>{});
    }
  }
};
template <class T, class... Policy>
cudaError_t run(int64_t inputs, const void* a, const void* b, const void* c, void* out, int64_t n,
                cudaStream_t stream) {
  if (inputs == 1) return kernforge::elementwise<T, Policy...>(Probe{}, n, stream, out, a);
  if (inputs == 2) return kernforge::elementwise<T, Policy...>(Probe{}, n, stream, out, a, b);
  return kernforge::elementwise<T, Policy...>(Probe{}, n, stream, out, a, b, c);
}
}  // namespace
cudaError_t probe(kernforge::DType dtype, int64_t inputs, int64_t policy, const void* a,
                  const void* b, const void* c, void* out, int64_t n, cudaStream_t stream) {
  return kernforge::dispatch(dtype, [&](auto element) {
    using T = decltype(element);
    if (policy == 1) return run<T, Selector<1>>(inputs, a, b, c, out, n, stream);
    if (policy == 2) return run<T, Selector<2>>(inputs, a, b, c, out, n, stream);
    return run<T>(inputs, a, b, c, out, n, stream);
  });
}
"""
BINDING = """
#include "../probe.h"
#include "kernforge/stable_binding.h"
#include "registration.h"
using kernforge::Tensor;
Tensor run(const Tensor& a, const Tensor& b, const Tensor& c, int64_t inputs, int64_t policy) {
  const auto dtype = kernforge::dtype_of(a, "probe: a");
  Tensor out = kernforge::new_like(a);
  const void *x = a.const_data_ptr(), *y = b.const_data_ptr(), *z = c.const_data_ptr();
#if defined(CUDA_KERNEL)
  kernforge::on_device_of(a, "probe", [&](cudaStream_t stream) {
    return probe(dtype, inputs, policy, x, y, z, out.mutable_data_ptr(), a.numel(), stream);
  });
#else
  probe(dtype, inputs, x, y, z, out.mutable_data_ptr(), a.numel());
#endif
  return out;
}
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("probe(Tensor a, Tensor b, Tensor c, int inputs, int policy) -> Tensor");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("probe", TORCH_BOX(&run));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
FILES = {
    "build.toml": MANIFEST,
    "probe.h": PROBE,
    "probe_cpu.cpp": CPU,
    "probe.cu": CUDA,
    "torch-ext/binding.cpp": BINDING,
    "torch-ext/header_probe/__init__.py": "from ._ops import ops\n",
}
ON_GPU = pytest.param("cuda", marks=pytest.mark.gpu)
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
# Less than a vector, around a block's vectors, and what is left after the last one.
LENGTHS = (0, 1, 3, 8, 255, 1024, 1031, 4096 + 7, (1 << 20) + 5)


def compiled(*argv):
    done = subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "header", ["dtype.h", "elementwise.h", "binding.h", "stable_binding.h", "aten_binding.h"]
)
def test_a_header_for_the_host_compiles_by_itself(tmp_path, header):
    source = tmp_path / "a.cpp"
    source.write_text(f'#include "kernforge/{header}"\n')
    search = (*SEARCH, "-isystem", TORCH, "-isystem", TORCH / "torch/csrc/api/include")
    flags = ("-fsyntax-only", "-DCPU_KERNEL", "-Wall", "-Wextra", "-Werror")
    compiled("c++", "-std=c++20", *flags, *search, source)


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize(("arch", "waits"), [("80", False), ("90", True)])
def test_device_code_waits_from_hopper_on(tmp_path, arch, waits, standard):
    toolkit = find_cuda(os.environ)
    if toolkit is None:
        pytest.skip("there is no installed toolkit")
    for name in ("probe.h", "probe.cu"):
        (tmp_path / name).write_text(FILES[name])
    flags = (
        "-ptx",
        f"-arch=compute_{arch}",
        "-Werror",
        "all-warnings",
        "-Wno-deprecated-gpu-targets",
    )
    argv = (toolkit / "bin/nvcc", f"-std={standard}", *flags, SEARCH[0], tmp_path / "probe.cu")
    compiled(*argv, "-o", tmp_path / "a.ptx")
    kernels = (tmp_path / "a.ptx").read_text().split(".entry")[1:]
    waiting = sum("griddepcontrol.wait" in kernel for kernel in kernels)
    assert waiting == (len(kernels) - 1 if waits else 0), "all but the probe"
    assert len(kernels) > 20


@pytest.fixture(scope="module")
def probes(tmp_path_factory, kept_home):
    """The project's op, built for a device when it is first asked for."""
    root = tmp_path_factory.mktemp("probe")
    for path, text in FILES.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    with pytest.MonkeyPatch.context() as patch:
        jit_homes.use_kept(kept_home, patch)
        module = kernforge.load(root)
        yield lambda device: module.ops.probe if device == here() else None
        jit_homes.wait()


def here():
    return "cuda" if torch.cuda.is_available() else "cpu"


def expected(given, inputs):
    a, b, c = (one.double() for one in given)
    return [a + 1, a - 2 * b, a - 2 * b + 4 * c][inputs - 1].to(given[0].dtype)


@pytest.mark.parametrize("inputs", [1, 2, 3])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("device", ["cpu", ON_GPU])
def test_every_length_alignment_and_policy_gives_the_formula(probes, device, dtype, inputs):
    probe = probes(device)
    if probe is None:
        pytest.skip(f"this machine's build is for {here()}")
    torch.manual_seed(inputs)
    for n in LENGTHS:
        for start in (0, 1):
            # Small whole numbers: every result is exact in each type.
            parents = [torch.randint(-8, 9, (n + 1,), device=device).to(dtype) for _ in range(3)]
            given = [parents[0][start : start + n], *(p[:n] for p in parents[1:])]
            for policy in (0, 1, 2):
                got = probe(*given, inputs, policy)
                assert torch.equal(got, expected(given, inputs)), (n, start, policy)


@pytest.mark.gpu
def test_each_kernel_of_a_graph_sees_the_one_before_it(probes):
    probe = probes("cuda")
    if probe is None:
        pytest.skip("there is no GPU")
    x = torch.zeros(1 << 20, device="cuda")
    probe(x, x, x, 1, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(50):
            y = probe(y, y, y, 1, 0)
    for number in range(3):
        x.fill_(number)
        graph.replay()
        assert bool((y == number + 50).all())

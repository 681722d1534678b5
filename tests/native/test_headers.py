# SPDX-License-Identifier: Apache-2.0
"""The headers that kernforge brings: each compiles by itself, and the element-wise ones are right.

    pytest tests/native/test_headers.py

runs the CUDA part on a machine with a GPU and an installed CUDA toolkit; it reads no network there.
"""

import itertools
import os
import re
from pathlib import Path

import pytest
from support import jit_homes, trees
from support.programs import output

import kernforge
from kernforge.toolchain.installed import find_cuda

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

INCLUDE = Path(kernforge.__file__).parent / "include"
SEARCH = (f"-I{INCLUDE}/csrc", f"-I{INCLUDE}/torch-ext")
TORCH = Path(torch.__file__).parent / "include"
MANIFEST = """
[general]
name = "%s"
version = 1
edition = 5
license = "Apache-2.0"
backends = [%s]

[torch]
src = ["torch-ext/binding.cpp"]
stable-abi = "2.10"
"""
SECTIONS = """
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
# 64 rows of a, kN of b, 128 bytes of the depth, by one warp group; by columns: in memory the depth
# is the slow dimension.
HOPPER = """
#include "kernforge/hopper.cuh"
namespace hop = kernforge::hopper;
template <class T, int kN, hop::Major kLeft, hop::Major kRight>
static __global__ void product(const __grid_constant__ CUtensorMap a,
                               const __grid_constant__ CUtensorMap b, float* out) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) char memory[];
  const uint32_t left = hop::shared_address(memory), right = left + 64 * 128;
  const uint32_t barrier = right + (kN + 63) / 64 * 64 * 128;
  if (threadIdx.x == 0) {
    hop::prefetch_map(&a);
    hop::mbarrier_init(barrier, 1);
    hop::mbarrier_init_fence();
    hop::mbarrier_expect(barrier, (64 + kN) * 128);
    hop::load_box(left, &a, 0, 0, 0, barrier);
    if constexpr (kRight == hop::Major::kDepth) {
      hop::load_box(right, &b, 0, 0, barrier);
    } else {
      for (int i = 0; i < kN / 64; ++i) {
        hop::load_box(right + i * 64 * 128, &b, i * 64, 0, barrier);
      }
    }
  }
  __syncthreads();
  hop::mbarrier_wait(barrier, 0);
  float d[kN / 2];
  hop::products_fence();
  for (int step = 0; step < 4; ++step) {
    const uint64_t of_left = kLeft == hop::Major::kDepth
                                 ? hop::descriptor(left) + step * 2
                                 : hop::descriptor_by_rows<64 * 128>(left) + step * 128;
    const uint64_t of_right = kRight == hop::Major::kDepth
                                  ? hop::descriptor(right) + step * 2
                                  : hop::descriptor_by_rows<64 * 128>(right) + step * 128;
    hop::Product<T, T, kN, kLeft, kRight>::run(d, of_left, of_right, step);
  }
  hop::products_commit();
  hop::products_wait<0>();
  hop::pin(d);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  for (int i = 0; i < kN / 2; ++i) {
    const int row = 16 * warp + lane / 4 + 8 * (i % 4 / 2);
    out[row * kN + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
  }
#endif
}
template <class T, int kN, hop::Major kLeft, hop::Major kRight>
cudaError_t run(const void* a, const void* b, float* out, cudaStream_t stream) {
  constexpr int kDepth = 128 / sizeof(T), kShared = (64 + (kN + 63) / 64 * 64) * 128 + 8;
  CUtensorMap of_a, of_b;
  const auto type = sizeof(T) == 4 ? CU_TENSOR_MAP_DATA_TYPE_TFLOAT32 : hop::kMapType<T>;
  const auto encode = [&](CUtensorMap* map, const void* data, int rows, int box, bool by_rows,
                          int matrices) {
    return by_rows ? hop::encode_map(map, type, sizeof(T), data, kDepth, rows, rows, kDepth,
                                     matrices, kDepth * rows)
                   : hop::encode_map(map, type, sizeof(T), data, rows, kDepth, kDepth, box,
                                     matrices, kDepth * rows);
  };
  if (!encode(&of_a, a, 64, 64, kLeft == hop::Major::kRows, 1) ||
      !encode(&of_b, b, kN, kN, kRight == hop::Major::kRows, 0)) {
    return cudaErrorInvalidValue;
  }
  const auto kernel = &product<T, kN, kLeft, kRight>;
  if (const auto error =
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kShared)) {
    return error;
  }
  kernel<<<1, 128, kShared, stream>>>(of_a, of_b, out);
  return cudaGetLastError();
}
template <class T, hop::Major kLeft, hop::Major kRight>
cudaError_t of_width(int64_t n, const void* a, const void* b, float* out, cudaStream_t stream) {
  if (n == 256) return run<T, 256, kLeft, kRight>(a, b, out, stream);
  if (n == 192) return run<T, 192, kLeft, kRight>(a, b, out, stream);
  if (n == 128) return run<T, 128, kLeft, kRight>(a, b, out, stream);
  if (n == 64) return run<T, 64, kLeft, kRight>(a, b, out, stream);
  if constexpr (kRight == hop::Major::kDepth) {
    if (n == 96) return run<T, 96, kLeft, kRight>(a, b, out, stream);
    if (n == 32) return run<T, 32, kLeft, kRight>(a, b, out, stream);
    if (n == 16) return run<T, 16, kLeft, kRight>(a, b, out, stream);
  }
  return cudaErrorInvalidValue;
}
template <class T>
cudaError_t of_type(bool left, bool right, int64_t n, const void* a, const void* b, float* out,
                    cudaStream_t stream) {
  constexpr auto kDepth = hop::Major::kDepth, kRows = hop::Major::kRows;
  if constexpr (sizeof(T) == 2) {
    if (left && right) return of_width<T, kRows, kRows>(n, a, b, out, stream);
    if (left) return of_width<T, kRows, kDepth>(n, a, b, out, stream);
    if (right) return of_width<T, kDepth, kRows>(n, a, b, out, stream);
  }
  return of_width<T, kDepth, kDepth>(n, a, b, out, stream);
}
cudaError_t hopper_product(int64_t type, bool left, bool right, int64_t n, const void* a,
                           const void* b, float* out, cudaStream_t stream) {
  if (type == 0) return of_type<__nv_bfloat16>(left, right, n, a, b, out, stream);
  if (type == 1) return of_type<__half>(left, right, n, a, b, out, stream);
  if (type == 2) return of_type<float>(left, right, n, a, b, out, stream);
  if (type == 3) return of_type<hop::float8_e4m3>(left, right, n, a, b, out, stream);
  return of_type<hop::float8_e5m2>(left, right, n, a, b, out, stream);
}
"""
HOPPER_BINDING = """
#include <cuda_runtime_api.h>
#include "kernforge/stable_binding.h"
#include "registration.h"
using kernforge::Tensor;
cudaError_t hopper_product(int64_t type, bool left, bool right, int64_t n, const void* a,
                           const void* b, float* out, cudaStream_t stream);
void run(const Tensor& a, const Tensor& b, Tensor out, int64_t type, bool left, bool right) {
  kernforge::on_device_of(a, "hopper", [&](cudaStream_t stream) {
    return hopper_product(type, left, right, out.size(1), a.const_data_ptr(), b.const_data_ptr(),
                          static_cast<float*>(out.mutable_data_ptr()), stream);
  });
}
STABLE_TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {
  ops.def("product(Tensor a, Tensor b, Tensor(a!) out, int type, bool left, bool right) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, KERNFORGE_BUILT_KEY, ops) {
  ops.impl("product", TORCH_BOX(&run));
}
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
HOPPER_FILES = {
    "build.toml": MANIFEST % ("hopper-probe", '"cuda"')
    + """
[kernel.cuda]
backend = "cuda"
depends = []
cuda-capabilities = ["9.0a"]
src = ["probe.cu"]
""",
    "probe.cu": HOPPER,
    "torch-ext/binding.cpp": HOPPER_BINDING,
    "torch-ext/hopper_probe/__init__.py": "from ._ops import ops\n",
}
FILES = {
    "build.toml": MANIFEST % ("header-probe", '"cpu", "cuda"') + SECTIONS,
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


def ptx(place, standard, arch):
    """What nvcc makes of a directory's probe."""
    toolkit = find_cuda(os.environ)
    if toolkit is None:
        pytest.skip("there is no installed toolkit")
    flags = ("-Werror", "all-warnings", "-Wno-deprecated-gpu-targets", SEARCH[0])
    argv = (f"-std={standard}", "-ptx", f"-arch=compute_{arch}", *flags, place / "probe.cu")
    output((toolkit / "bin/nvcc", *argv, "-o", place / "a.ptx"))
    return (place / "a.ptx").read_text()


@pytest.mark.parametrize(
    "header",
    [
        *("dtype.h", "elementwise.h", "strides.h", "binding.h"),
        *("stable_binding.h", "stable_products.h", "aten_binding.h"),
    ],
)
def test_a_header_for_the_host_compiles_by_itself(tmp_path, header):
    source = tmp_path / "a.cpp"
    source.write_text(f'#include "kernforge/{header}"\n')
    search = (*SEARCH, "-isystem", TORCH, "-isystem", TORCH / "torch/csrc/api/include")
    flags = ("-fsyntax-only", "-DCPU_KERNEL", "-Wall", "-Wextra", "-Werror")
    output(("c++", "-std=c++20", *flags, *search, source))


@pytest.mark.parametrize("standard", ["c++17", "c++20"])
@pytest.mark.parametrize(("arch", "waits"), [("80", False), ("90", True)])
def test_device_code_waits_from_hopper_on(tmp_path, arch, waits, standard):
    trees.write(tmp_path, {name: FILES[name] for name in ("probe.h", "probe.cu")})
    kernels = ptx(tmp_path, standard, arch).split(".entry")[1:]
    waiting = sum("griddepcontrol.wait" in kernel for kernel in kernels)
    assert waiting == (len(kernels) - 1 if waits else 0), "all but the probe"
    assert len(kernels) > 20


def test_hopper_names_each_instruction_with_its_operands(tmp_path):
    trees.write(tmp_path, {"probe.cu": HOPPER})
    text = ptx(tmp_path, "c++17", "90a")
    products = set(re.findall(r"wgmma\.mma_async\.\S+ .*?;", text))
    shapes = {line.split()[0].split("aligned.")[1] for line in products}
    types = ("k16.f32.bf16.bf16", "k16.f32.f16.f16", "k8.f32.tf32.tf32", "k32.f32.e4m3.e4m3")
    widths = (16, 32, 64, 96, 128, 192, 256)
    assert {f"m64n{n}{of}" for n in widths for of in types} <= shapes
    for line in products:
        width, sums = int(re.search(r"m64n(\d+)k", line)[1]), line.split("{")[1].split("}")[0]
        assert len(sums.split(",")) == width // 2
    modes = {line.rstrip(";").rsplit(", ", 2)[1:] == ["1", "1"] for line in products}
    assert modes == {True, False}


@pytest.mark.gpu
@pytest.mark.skipif(
    not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0),
    reason="no GPU of compute capability 9.0 here",
)
def test_products_of_hopper_in_every_layout(tmp_path, kept_home, monkeypatch):
    trees.write(tmp_path, HOPPER_FILES)
    jit_homes.use_kept(kept_home, monkeypatch)
    product = kernforge.load(tmp_path).ops.product
    dtypes = ("bfloat16", "float16", "float32", "float8_e4m3fn", "float8_e5m2")
    torch.manual_seed(2)
    for number, dtype in enumerate(getattr(torch, name) for name in dtypes):
        depth = 128 // dtype.itemsize
        modes = (False, True) if dtype.itemsize == 2 else (False,)
        for left, right, n in itertools.product(modes, modes, (16, 32, 64, 96, 128, 192, 256)):
            if right and n % 64:
                continue
            # Small whole numbers: every sum is exact.
            a, b = (torch.randint(-4, 5, (rows, depth), device="cuda") for rows in (64, n))
            out = torch.full((64, n), float("nan"), device="cuda")
            given = [
                (one.t() if by_rows else one).contiguous().to(dtype)
                for one, by_rows in ((a, left), (b, right))
            ]
            product(*given, out, number, left, right)
            assert torch.equal(out, (a.double() @ b.double().t()).float()), (dtype, left, right, n)


@pytest.fixture(scope="module")
def probes(tmp_path_factory, kept_home):
    """The project's op, built for a device when it is first asked for."""
    root = tmp_path_factory.mktemp("probe")
    trees.write(root, FILES)
    with pytest.MonkeyPatch.context() as patch:
        jit_homes.use_kept(kept_home, patch)
        module = kernforge.load(root)
        yield lambda device: module.ops.probe if device == here() else None


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

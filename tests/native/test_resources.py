# SPDX-License-Identifier: Apache-2.0
"""What is read off machine code, held against ptxas and NVIDIA's own calculator."""

import functools
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from support.programs import run

from kernforge.binary import kernel_usage
from kernforge.errors import CheckError

pytestmark = pytest.mark.native

KERNELS = Path(__file__).parents[2] / "kernels"
# A kernel for each thing that is told: bounds, static and dynamic shared memory, registers that do
# not suffice, an array in local memory that is no spill, a function that is called, a C name.
SOURCE = """
template <int N> __global__ void __launch_bounds__(256, 4) bounded(float* x) {
  __shared__ float s[N];
  s[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = s[255 - threadIdx.x];
}
template __global__ void bounded<512>(float*);
__global__ void __launch_bounds__(1024) spilling(float* x, int n) {
  float v[80];
#pragma unroll
  for (int i = 0; i < 80; i++) v[i] = x[i * n + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 80; i++) x[i * n + threadIdx.x] = v[i] * v[(i + 41) % 80];
}
__global__ void local_array(float* x, int n) {
  float v[256];
  for (int i = 0; i < 256; i++) v[i] = x[i];
  x[n] = v[n % 256] + v[(n * 7) % 256];
}
__device__ __noinline__ float called(float* x, int n) {
  float v[256];
  for (int i = 0; i < 256; i++) v[i] = x[i];
  return v[n % 256] * v[(n * 7) % 256];
}
namespace {
__global__ void calling(float* x, int n) { x[n] = called(x, n); }
}
extern "C" __global__ void plain(float* x) {
  extern __shared__ float d[];
  d[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  x[threadIdx.x] = d[threadIdx.x ^ 1];
}
void go(float* x) { calling<<<1, 1>>>(x, 2); }
"""
NAMES = ("bounded<512>", "spilling", "local_array", "calling", "plain")
USED = re.compile(
    r"Compiling entry function '(\S+)'.*?(\d+) bytes stack frame, (\d+) bytes spill stores, "
    r"(\d+) bytes spill loads.*?Used (\d+) registers, used (\d+) barriers"
    r"(?:, (\d+) bytes cumulative stack size)?(?:, (\d+) bytes smem)?",
    re.DOTALL,
)


@pytest.fixture(scope="module")
def toolkit(kernforge_cli):
    """Root of a CUDA toolkit: a whole one of the machine, or the one from wheels."""
    if nvcc := shutil.which("nvcc"):
        installed = Path(nvcc).resolve().parents[1]
        if (installed / "include" / "cuda_occupancy.h").is_file():
            return installed
    shell = ("shell", KERNELS / "img2gray", "--variant", "*-cu130-*", "--json")
    done = kernforge_cli(*shell)
    return Path(json.loads(done.stdout)["environment"]["CUDA_HOME"])


def compiled(toolkit, source, out, arch, *more):
    """Compile; returns what ptxas said."""
    digits = arch.replace(".", "")
    argv = [toolkit / "bin/nvcc", "-gencode", f"arch=compute_{digits},code=sm_{digits}"]
    argv += ["-Xptxas", "-v", "-O3", "-std=c++20", *more, source, "-o", out]
    return run(argv).stderr


def told_by_ptxas(text):
    rows = {}
    for symbol, frame, stores, loads, registers, barriers, stack, shared in USED.findall(text):
        counts = (registers, stack or frame, stores, loads, shared or 0, barriers)
        rows[symbol] = tuple(map(int, counts))
    return rows


def told_by_us(data):
    return {
        one.use.symbol: (
            *(one.use.registers, one.use.stack, one.use.spill_stores, one.use.spill_loads),
            *(one.use.shared, one.use.barriers),
        )
        for one in kernel_usage.read(data)
        if one.use.kernel
    }


@pytest.fixture
def built(toolkit, tmp_path):
    """An object of the kernels."""
    (tmp_path / "k.cu").write_text(SOURCE)
    compiled(toolkit, tmp_path / "k.cu", tmp_path / "k.o", "9.0", "-c")
    return tmp_path / "k.o"


@pytest.mark.parametrize("arch", ["8.0", "9.0", "12.0"])
def test_the_numbers_are_those_of_ptxas(toolkit, tmp_path, arch):
    (tmp_path / "k.cu").write_text(SOURCE)
    said = told_by_ptxas(compiled(toolkit, tmp_path / "k.cu", tmp_path / "k.o", arch, "-c"))
    found = told_by_us((tmp_path / "k.o").read_bytes())
    assert found == said
    assert len(found) == 5
    assert sum(row[2] > 0 for row in found.values()) == 1, "one kernel spills"


def test_names_bounds_and_what_is_called(built):
    found = {one.short: one for one in kernel_usage.read(built.read_bytes())}
    assert set(found) == set(NAMES)
    assert found["calling"].use.stack >= 1024, "with that of what it calls"
    assert [one.threads for one in found["bounded<512>"].fills] == [256]
    assert [one.threads for one in found["plain"].fills] == [128, 256, 512, 1024]


def test_a_compressed_cubin_is_refused_in_words(toolkit, tmp_path):
    (tmp_path / "k.cu").write_text(SOURCE)
    compiled(toolkit, tmp_path / "k.cu", tmp_path / "k.o", "9.0", "-c", "-Xfatbin", "-compress-all")
    with pytest.raises(CheckError, match="compressed"):
        kernel_usage.read((tmp_path / "k.o").read_bytes())


def test_the_command_tells_them_as_text_and_json(built, kernforge_cli, tmp_path):
    ask = functools.partial(kernforge_cli, "check", "--resources")
    (told,) = json.loads(ask(built, "--json").stdout)
    kernels = {one["symbol"]: one for one in told["kernels"]}
    assert len(kernels) == 5
    assert kernels["plain"]["occupancy"][0]["threads"] == 128
    text = ask(built).stdout
    assert "bounded<512>" in text
    assert " B out, " in text
    assert "k.cu: the file is not a readable ELF" in ask(tmp_path / "k.cu", expect=6).stderr
    assert "is not a directory" in ask(tmp_path / "gone", expect=2).stderr


ORACLE = """
#include <cuda_occupancy.h>
#include <cstdio>
int main() {
  int major, minor, warps, shared, block, reserved, threads, registers, used, barriers;
  while (scanf("%d %d %d %d %d %d %d %d %d %d", &major, &minor, &warps, &shared, &block, &reserved,
               &threads, &registers, &used, &barriers) == 10) {
    cudaOccDeviceProp device;
    device.computeMajor = major; device.computeMinor = minor;
    device.maxThreadsPerBlock = 1024; device.maxThreadsPerMultiprocessor = warps * 32;
    device.regsPerBlock = 65536; device.regsPerMultiprocessor = 65536; device.warpSize = 32;
    device.sharedMemPerBlock = 49152; device.sharedMemPerMultiprocessor = shared;
    device.numSms = 1; device.sharedMemPerBlockOptin = block;
    device.reservedSharedMemPerBlock = reserved;
    cudaOccFuncAttributes kernel;
    kernel.maxThreadsPerBlock = 1024; kernel.numRegs = registers; kernel.sharedSizeBytes = used;
    kernel.partitionedGCConfig = PARTITIONED_GC_OFF;
    kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN; kernel.maxDynamicSharedSizeBytes = 0;
    kernel.numBlockBarriers = barriers; kernel.virtualResourceCount = 0;
    cudaOccDeviceState state;
    cudaOccResult result;
    int error = cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state,
                                                        threads, 0);
    printf("%d\\n", error ? -error : result.activeBlocksPerMultiprocessor);
  }
}
"""


@pytest.fixture(scope="module")
def oracle(toolkit, tmp_path_factory):
    """NVIDIA's calculator as a program."""
    path = tmp_path_factory.mktemp("oracle")
    (path / "oracle.cpp").write_text(ORACLE)
    argv = ["g++", "-O1", "-w", "-isystem", toolkit / "include", path / "oracle.cpp", "-o"]
    run([*argv, path / "oracle"])
    return path / "oracle"


def test_occupancy_is_that_of_nvidias_calculator(oracle):
    asked, ours = [], []
    for name, sm in kernel_usage.limits_table().items():
        for threads in (1, 32, 33, 96, 128, 160, 256, 384, 500, 512, 768, 1023, 1024):
            for registers in (1, 8, 16, 17, 32, 33, 40, 64, 65, 96, 128, 168, 200, 255):
                for shared in (0, 1, 1000, 1024, 8192, 20_001, 49_152, 60_000, 102_400, 200_000):
                    for barriers in (0, 1, 3, 16):
                        row = (*name.split("."), sm.warps, sm.shared, sm.shared_block)
                        row = (*row, sm.reserved, threads, registers, shared, barriers)
                        asked.append(" ".join(map(str, row)))
                        found = kernel_usage.occupancy(
                            sm,
                            threads=threads,
                            registers=registers,
                            shared=shared,
                            barriers=barriers,
                        )
                        ours.append(found.blocks)
    done = subprocess.run(
        [str(oracle)], input="\n".join(asked), capture_output=True, text=True, check=True
    )
    theirs = list(map(int, done.stdout.split()))
    wrong = [(a, o, t) for a, o, t in zip(asked, ours, theirs, strict=True) if o != t]
    assert not wrong, wrong[:10]
    assert len(set(theirs)) > 20

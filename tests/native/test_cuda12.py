# SPDX-License-Identifier: Apache-2.0
"""CUDA 12 from the package index alone: NVIDIA's front end, ptxas and headers of 12."""

import json
import re
import shutil

import pytest
from support import projects

from kernforge.binary import elf, fatbin
from kernforge.builder import workspace

pytestmark = pytest.mark.native

VARIANT = "torch-stable-abi210-cu{}-x86_64-linux"
# What chooses by CUDA's version, what is internal to a file, and what could carry a path.
CU = (
    projects.CU
    + """
#include <cub/block/block_reduce.cuh>
static_assert(CUDART_VERSION == EXPECTED, "the headers are of another CUDA");
static_assert(__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10 == EXPECTED, "so is nvcc");
namespace {
__device__ int calls;
template <typename T> __global__ void internal(T* x) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage storage;
  T sum = Reduce(storage).Sum(sqrtf(x[threadIdx.x]));
  if (threadIdx.x == 0) x[0] = sum, ++calls;
}
}  // namespace
extern "C" const char* where() { return __FILE__ " " __DATE__ " " __TIME__; }
void more(float* x, int n) {
  internal<float><<<min(n, 4), 128>>>(x);
  auto scale = [=] __device__(float v) { return v * n; };
  (void)scale;
}
"""
)


@pytest.fixture(scope="module")
def kernforge(kernforge_cli):
    def call(home, *arguments, expect=0):
        done = kernforge_cli(*arguments, home=home, expect=None)
        if "no configured package index has" in done.stderr:
            pytest.skip(f"the package index lacks a wheel: {done.stderr.splitlines()[-2]}")
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def write(root, cuda):
    digits = cuda.replace(".", "")
    projects.write(root, backends=("cuda",), cu=CU.replace("EXPECTED", f"12{digits[2:]:0>2}0"))
    manifest = root / "build.toml"
    archs = 'cuda-capabilities = ["7.0", "9.0a+PTX"]\ncuda-flags = ["-lineinfo"]'
    archs = archs.replace("9.0a+PTX", "9.0+PTX")
    manifest.write_text(manifest.read_text().replace('cuda-capabilities = ["9.0"]', archs))
    return root


@pytest.fixture(scope="module", params=["12.6", "12.8", "12.9"])
def built(request, kept_home, tmp_path_factory, kernforge):
    cuda = request.param
    root = write(tmp_path_factory.mktemp("first") / "project", cuda)
    name = VARIANT.format(cuda.replace(".", ""))
    options = ("--variant", name, "--sandbox", "required", "--arch", "9.0")
    return cuda, name, root, kernforge(kept_home, "build", root, *options)


def test_it_builds_and_says_what_it_is_made_of(built):
    cuda, name, root, _ = built
    kit = workspace.read_lock(root).tree(f"cuda-{cuda}")
    assert kit.release.startswith(f"{cuda}.")
    assert kit.front_end.release.startswith("13.0.")
    metadata = json.loads((root / "build" / name / "metadata.json").read_text())
    assert metadata["provenance"]["kernforge"]["cuda-compiler"].startswith("front end of CUDA 13.0")


def test_machine_code_and_ptx_are_of_that_cuda(built):
    cuda, name, root, _ = built
    (library,) = (root / "build" / name).rglob("*.so")
    data = library.read_bytes()
    found = fatbin.architectures(data)
    assert (found.cubins, found.ptx) == (("9.0",), ("9.0",))
    assert b"libcudart.so" not in data
    # A cubin of CUDA 12 has the toolkit's number as the version of its ELF file, and 51.7 as its
    # ABI.
    digits = int(cuda.replace(".", ""))
    for _, cubin in fatbin.cubins(data):
        assert (cubin[7], cubin[8], int.from_bytes(cubin[20:24], "little")) == (51, 7, digits)
    # PTX is compressed as CUDA 12 does it: its first words are as they were.
    version = {"12.6": b"8.5", "12.8": b"8.7", "12.9": b"8.8"}[cuda]
    assert set(re.findall(rb"version (\d\.\d)\n", elf.section(data, ".nv_fatbin"))) == {version}


def test_elsewhere_without_a_sandbox_it_gives_the_same_bytes(built, kept_home, tmp_path, kernforge):
    cuda, name, first, _ = built
    if cuda != "12.8":
        pytest.skip("one CUDA 12 shows it")
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    (home / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    root = write(tmp_path / "a rather longer" / "path", cuda)
    shutil.copy(first / "kernforge.lock", root)
    options = ("--variant", name, "--locked", "--sandbox", "off", "--jobs", "1", "--arch", "9.0")
    kernforge(home, "build", root, *options)
    one, other = (sorted((where / "build" / name).rglob("*.so")) for where in (first, root))
    assert [path.name for path in one] == [path.name for path in other]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_unsupported_flags_are_refused_before_compiling(built, kept_home, tmp_path, kernforge):
    cuda, name, first, _ = built
    root = write(tmp_path / "project", cuda)
    shutil.copy(first / "kernforge.lock", root)
    done = kernforge(kept_home, "build", root, "--variant", name, "--dry-run")
    assert f"CUDA {cuda} has no code for 7.0" in done.stderr
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace('"-lineinfo"', '"-rdc=true"'))
    done = kernforge(kept_home, "build", root, "--variant", name, expect=4)
    assert "times_two.cu is compiled with '-rdc=true'" in done.stderr
    assert "KERNFORGE_CUDA_HOME" in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""CUDA 12 compiled by clang, with nothing but the package index's wheels."""

import json
import os
import shutil
import sys

import pytest
from support import projects

from kernforge.binary import fatbin
from kernforge.build import workspace

pytestmark = pytest.mark.native

VARIANT = "torch-stable-abi210-cu128-x86_64-linux"
# What nvcc's host code has unasked, what is internal to a file, and what could carry a path.
CU = (
    projects.CU
    + """
#include <cub/block/block_reduce.cuh>
namespace {
__device__ int calls;
template <typename T> __global__ void internal(T* x) {
  using Reduce = cub::BlockReduce<T, 128>;
  __shared__ typename Reduce::TempStorage storage;
  T sum = Reduce(storage).Sum(sqrtf(x[threadIdx.x]));
  if (threadIdx.x == 0) x[0] = sum, ++calls;
}
}  // namespace
static __global__ void also_internal(float* x) { x[threadIdx.x] *= 2; }
extern "C" const char* where() { return __FILE__ " " __DATE__ " " __TIME__; }
void more(float* x, int n) {
  internal<float><<<min(n, 4), 128>>>(x);
  also_internal<<<1, max(n, 32)>>>(x);
  auto scale = [=] __device__(float v) { return v * n; };
  (void)scale;
}
"""
)


@pytest.fixture(scope="module")
def kernforge(fork_server):
    def call(home, *arguments, expect=0):
        argv = [sys.executable, "-m", "kernforge", *map(str, arguments)]
        done = fork_server.run(argv, env={**os.environ, "KERNFORGE_HOME": str(home)})
        if "no configured package index has" in done.stderr:
            pytest.skip(f"the package index lacks a wheel: {done.stderr.splitlines()[-2]}")
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    return call


def write(root):
    projects.write(root, backends=("cuda",), cu=CU)
    manifest = root / "build.toml"
    archs = 'cuda-capabilities = ["8.0", "9.0a", "12.0+PTX"]\ncuda-flags = ["-lineinfo"]'
    manifest.write_text(manifest.read_text().replace('cuda-capabilities = ["9.0"]', archs))
    return root


@pytest.fixture(scope="module")
def built(kept_home, tmp_path_factory, kernforge):
    root = write(tmp_path_factory.mktemp("first") / "project")
    options = ("--cuda-compiler", "clang", "--variant", VARIANT, "--sandbox", "required")
    return root, kernforge(kept_home, "build", root, *options)


def test_it_builds_and_passes_the_checks(built):
    root, done = built
    assert "clang 22.1.8 instead of nvcc" in done.stderr
    kit = workspace.read_lock(root).cuda["12.8"]
    assert kit.clang.release == "22.1.8"
    variant = root / "build" / VARIANT
    metadata = json.loads((variant / "metadata.json").read_text())
    assert metadata["provenance"]["kernforge"]["cuda-compiler"] == "clang 22.1.8"
    data = (variant / f"{metadata['id']}.abi3.so").read_bytes()
    found = fatbin.architectures(data)
    assert (found.cubins, found.ptx) == (("8.0", "9.0a", "12.0"), ("12.0",))
    assert b"libcudart.so" not in data


def test_the_lock_alone_chooses_clang_again(built, kept_home, kernforge):
    done = kernforge(kept_home, "build", built[0], "--variant", VARIANT, "--locked")
    assert "0 actions ran" in done.stdout


def test_elsewhere_without_a_sandbox_it_gives_the_same_bytes(built, kept_home, tmp_path, kernforge):
    home = tmp_path / "home"
    (home / "store").mkdir(parents=True)
    (home / "store" / "toolchains").symlink_to(kept_home / "store" / "toolchains")
    root = write(tmp_path / "a rather longer" / "path")
    shutil.copy(built[0] / "kernforge.lock", root)
    options = ("--variant", VARIANT, "--locked", "--sandbox", "off", "--jobs", "1")
    kernforge(home, "build", root, *options)
    one, other = (sorted((where / "build" / VARIANT).rglob("*.so")) for where in (built[0], root))
    assert [path.name for path in one] == [path.name for path in other]
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in other]


def test_a_flag_of_nvccs_alone_is_refused_before_anything_is_compiled(
    built, kept_home, tmp_path, kernforge
):
    root = write(tmp_path / "project")
    shutil.copy(built[0] / "kernforge.lock", root)
    manifest = root / "build.toml"
    manifest.write_text(manifest.read_text().replace('"-lineinfo"', '"-rdc=true"'))
    done = kernforge(kept_home, "build", root, "--variant", VARIANT, expect=3)
    assert "times_two.cu is compiled with '-rdc=true'" in done.stderr

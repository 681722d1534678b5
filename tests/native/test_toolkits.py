# SPDX-License-Identifier: Apache-2.0
"""Real builds with toolkits and frameworks beyond the package index's CUDA and torch."""

import functools
import json
import subprocess
import sys

import pytest
from support import projects, trees

from kernforge.binary import elf
from kernforge.builder import workspace
from kernforge.store.local import Store
from kernforge.toolchain.provision import Toolchains

pytestmark = pytest.mark.native

TVM_FFI_MANIFEST = """
[general]
name = "times-two"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
[tvm-ffi]
src = ["tvm-ffi-ext/binding.cpp"]
[kernel.cpu]
backend = "cpu"
depends = []
src = ["times_two.cpp", "times_two.h"]
"""
TVM_FFI_BINDING = """#include <tvm/ffi/tvm_ffi.h>
#include "../times_two.h"
namespace ffi = tvm::ffi;
void times_two(ffi::TensorView x, ffi::TensorView y) {
  TVM_FFI_CHECK(x.numel() == y.numel(), ValueError) << "sizes differ";
  const auto* in = static_cast<const float*>(x.data_ptr());
  times_two_cpu(in, static_cast<float*>(y.data_ptr()), x.numel());
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(times_two, times_two);
"""


@pytest.fixture
def build(kernforge_cli):
    return functools.partial(kernforge_cli, "build")


@pytest.fixture
def toolkit(kept_home, build, tmp_path):
    """Tree of CUDA 13.0 from the index's wheels."""
    root = projects.write(tmp_path / "first", backends=("cuda",))
    build(root)
    locked = workspace.read_lock(root).trees["cuda-13.0"]
    return Toolchains(Store(kept_home / "store"), None).path(locked)


def test_a_second_project_locks_without_a_network(kernforge_cli, tmp_path):
    first, second = (projects.write(tmp_path / name) for name in ("first", "second"))
    kernforge_cli("lock", first)
    nowhere = {"PIP_INDEX_URL": "http://127.0.0.1:9/simple"}
    done = kernforge_cli("lock", second, env=nowhere)
    assert "the toolchain of earlier builds is locked" in done.stderr
    assert workspace.read_lock(second) == workspace.read_lock(first)


def test_an_installed_toolkit_builds(build, toolkit, tmp_path):
    root = projects.write(tmp_path / "project", backends=("cuda",))
    build(root, env={"KERNFORGE_CUDA_HOME": str(toolkit)})
    lock = workspace.read_lock(root)
    assert lock.trees["cuda-13.0"].digest
    assert not lock.trees["cuda-13.0"].wheels
    assert str(toolkit) not in lock.to_json()
    # With the result in the store no toolkit is needed; with another source it is.
    build(root, "--locked")
    (root / "times_two.cu").write_text(projects.CU + f"// {tmp_path}\n")
    done = build(root, "--locked", expect=4)
    assert "KERNFORGE_CUDA_HOME" in done.stderr


def test_a_tvm_ffi_kernel_builds_and_runs(build, tmp_path):
    files = {
        "build.toml": TVM_FFI_MANIFEST,
        "times_two.h": projects.HEADER,
        "times_two.cpp": projects.CPP,
        "tvm-ffi-ext/binding.cpp": TVM_FFI_BINDING,
        "tvm-ffi-ext/times_two/__init__.py": "from ._ops import ops\n\ntimes_two = ops.times_two\n",
    }
    build(trees.write(tmp_path, files))
    (variant,) = (tmp_path / "build").iterdir()
    assert variant.name == "tvm-ffi01-cpu-x86_64-linux"
    metadata = json.loads((variant / "metadata.json").read_text())
    needed = elf.parse((variant / f"{metadata['id']}.so").read_bytes()).needed
    assert not [name for name in needed if "torch" in name or "python" in name]
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    code = (
        "import kernforge, numpy\nfrom pathlib import Path\n"
        f"kernel = kernforge.get_local_kernel(Path({str(tmp_path)!r}))\n"
        "import tvm_ffi\nx = numpy.arange(5, dtype='float32'); y = numpy.empty_like(x)\n"
        "kernel.times_two(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))\n"
        "assert (y == 2 * x).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

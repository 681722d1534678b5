# SPDX-License-Identifier: Apache-2.0
"""Real builds with toolkits and frameworks beyond the package index's CUDA and torch."""

import functools
import hashlib
import json
import os
import subprocess
import sys
import tarfile

import pytest
from support import projects

from kernforge.build import workspace
from kernforge.store.local import Store
from kernforge.system import digest, files
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
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
  times_two_cpu(static_cast<const float*>(x.data_ptr()), static_cast<float*>(y.data_ptr()), x.numel());
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(times_two, times_two);
"""


@pytest.fixture
def build(kernforge_cli):
    return functools.partial(kernforge_cli, "build")


def test_an_old_lock_gets_the_libraries_that_it_lacks_and_keeps_its_release(build, tmp_path):
    root = projects.write(tmp_path / "project", backends=("cuda",), stable=False)
    plan = (root, "--dry-run", "--variant", "torch210-*-cu130-*")
    build(*plan)
    path = root / "kernforge.lock"
    whole = json.loads(path.read_text())
    old = json.loads(path.read_text())
    old["cuda"]["13.0"]["libraries"] = old["cuda"]["13.0"]["libraries"][:4]
    path.write_text(json.dumps(old))
    build(*plan)
    assert json.loads(path.read_text()) == whole


@pytest.fixture
def toolkit(kept_home, build, tmp_path):
    """Tree of CUDA 13.0 from the index's wheels."""
    root = projects.write(tmp_path / "first", backends=("cuda",))
    build(root)
    locked = workspace.read_lock(root).cuda["13.0"]
    return Toolchains(Store(kept_home / "store"), None).toolkit(locked)


def test_an_installed_toolkit_builds(build, toolkit, tmp_path):
    root = projects.write(tmp_path / "project", backends=("cuda",))
    build(root, "--cuda-home", toolkit)
    lock = workspace.read_lock(root)
    assert lock.cuda["13.0"].directory
    assert not lock.cuda["13.0"].wheels
    assert str(toolkit) not in lock.to_json()
    # With the result in the store no toolkit is needed; with another source it is.
    build(root, "--locked")
    (root / "times_two.cu").write_text(projects.CU + f"// {tmp_path}\n")
    done = build(root, "--locked", expect=4)
    assert "--cuda-home" in done.stderr


def as_archive(root, component, members):
    """Pack trees as NVIDIA does: ``members`` are directories and what of each is packed."""
    path = f"{component}/linux-x86_64/{component}-linux-x86_64-12.9.1-archive.tar.xz"
    (root / path).parent.mkdir(parents=True)
    with tarfile.open(root / path, "w:xz", preset=0) as archive:
        for tree, member in members:
            archive.add(tree / member, f"{component}-linux-x86_64-12.9.1-archive/{member}")
    sha256 = hashlib.sha256((root / path).read_bytes()).hexdigest()
    return {"version": "12.9.1", "linux-x86_64": {"relative_path": path, "sha256": sha256}}


@pytest.fixture
def real_cuda12(kept_home):
    """Trees of what the package index has of CUDA 12.9: the runtime and the C++ core libraries."""
    store = Store(kept_home / "store")
    wheels = Wheels(
        functools.partial(Index.from_environment, os.environ), store.root / "downloads", Quiet()
    )

    def tree(project, version):
        def fill(root):
            (one, *_) = (
                wheel
                for wheel in wheels.index.wheels(project)
                if str(wheel.version) == version
                and "manylinux" in wheel.file
                and "x86_64" in wheel.file
            )
            archive = wheels.whole(one.file, one.sha256)
            for name, data in archive.fetch(n for n in archive.names() if not n.endswith("/")):
                if (path := name.split("/", 2))[0] == "nvidia" and len(path) == 3:
                    files.write_new(root / path[2], data)

        return store.tree("toolchains", digest.key("test", of=[project, version]), fill)

    return tree("nvidia-cuda-runtime-cu12", "12.9.79"), tree("nvidia-cuda-cccl-cu12", "12.9.27")


class Quiet:
    def fetching(self, what, total):
        return lambda count: None

    def note(self, text):
        pass


@pytest.mark.long
def test_archives_of_a_server_build(build, toolkit, real_cuda12, index_server, tmp_path):
    # nvcc is 13.0's, since no wheel has an older one; the runtime and CUB are really 12.9's.
    runtime, cccl = real_cuda12
    components = {
        "cuda_nvcc": [
            (toolkit, path)
            for path in ("bin", "nvvm", "include/crt", "include/fatbinary_section.h")
        ],
        "cuda_cudart": [(runtime, "include"), (runtime, "lib")],
        "cuda_cccl": [(cccl, "include")],
    }
    base = index_server.root / "redist"
    manifest = {c: as_archive(base, c, m) for c, m in components.items()}
    (base / "redistrib_12.9.1.json").write_text(json.dumps(manifest))
    version = "#include <cuda.h>\nstatic_assert(CUDA_VERSION == 12090);\n"
    cub = "#include <cub/version.cuh>\nstatic_assert(CUB_VERSION < 300000);\n"
    cu = version + cub + projects.CU
    root = projects.write(tmp_path / "project", backends=("cuda",), cu=cu)
    done = build(root, "--variant", "*-cu129-*", "--cuda-redist", f"{index_server.url}/redist")
    assert "torch-stable-abi210-cu129-x86_64-linux" in done.stdout
    assert workspace.read_lock(root).cuda["12.9"].release == "12.9.1"
    # The store has it now: no address is needed, and the lock makes the variant buildable.
    build(root, "--variant", "*-cu129-*", "--locked")


def test_a_tvm_ffi_kernel_builds_and_runs(build, tmp_path):
    files = {
        "build.toml": TVM_FFI_MANIFEST,
        "times_two.h": projects.HEADER,
        "times_two.cpp": projects.CPP,
        "tvm-ffi-ext/binding.cpp": TVM_FFI_BINDING,
        "tvm-ffi-ext/times_two/__init__.py": "from ._ops import ops\n\ntimes_two = ops.times_two\n",
    }
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    build(tmp_path)
    (variant,) = (tmp_path / "build").iterdir()
    assert variant.name == "tvm-ffi01-cpu-x86_64-linux"
    metadata = json.loads((variant / "metadata.json").read_text())
    assert (variant / f"{metadata['id']}.so").is_file()
    pytest.importorskip("tvm_ffi", reason="apache-tvm-ffi is not installed")
    code = (
        "import kernforge, numpy\nfrom pathlib import Path\n"
        f"kernel = kernforge.get_local_kernel(Path({str(tmp_path)!r}))\n"
        "import tvm_ffi\nx = numpy.arange(5, dtype='float32'); y = numpy.empty_like(x)\n"
        "kernel.times_two(tvm_ffi.from_dlpack(x), tvm_ffi.from_dlpack(y))\n"
        "assert (y == 2 * x).all()\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)

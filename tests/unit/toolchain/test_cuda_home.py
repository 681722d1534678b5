# SPDX-License-Identifier: Apache-2.0
"""Where installed CUDA toolkits have their parts, and what is said of a directory that is none."""

import os
import subprocess

import pytest

from kernforge.errors import ToolchainError, UsageError
from kernforge.store.local import Store
from kernforge.system.process import run
from kernforge.toolchain.installed import find_cuda, identify_cuda

NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 12.4, V12.4.131'\n"
# Where each layout has its headers and its libraries.
LAYOUTS = {
    "NVIDIA's installer": ("include", "lib64"),
    "conda": ("targets/x86_64-linux/include", "targets/x86_64-linux/lib"),
    "wheels": ("include", "lib"),
}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def toolkit(request, tmp_path):
    include, lib = request.param
    root = tmp_path / "cuda"
    write(root / "bin" / "nvcc", NVCC)
    write(root / "nvvm" / "bin" / "cicc")
    write(root / include / "cuda_runtime.h")
    write(root / lib / "libcudart_static.a")
    return root


def test_every_layout_serves_as_one_directory(toolkit, tmp_path):
    home = identify_cuda(toolkit, os.environ, run)
    assert (str(home.version), home.locked.release) == ("12.4", "12.4.131")
    tree = home.directory(Store(tmp_path / "store"))
    for part in ("bin/nvcc", "include/cuda_runtime.h", "lib64/libcudart_static.a", "nvvm/bin/cicc"):
        assert (tree / part).is_file(), part
    version = subprocess.check_output([tree / "bin" / "nvcc", "--version"], text=True)
    assert "12.4" in version


def test_an_nvcc_that_needs_a_library_path_gets_it(toolkit):
    script = f'#!/bin/sh\n[ "$LD_LIBRARY_PATH" = /m ] || {{ echo no libz >&2; exit 1; }}\n{NVCC}'
    write(toolkit / "bin" / "nvcc", script)
    with pytest.raises(ToolchainError, match="nvcc --version fails: no libz"):
        identify_cuda(toolkit, os.environ, run)
    home = identify_cuda(toolkit, {**os.environ, "LD_LIBRARY_PATH": "/m"}, run)
    assert (home.locked.release, home.library_path) == ("12.4.131", "/m")


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "KERNFORGE_CUDA_HOME"])
@pytest.mark.parametrize("value", [":{cuda}", "~/cuda", "/nowhere"])
def test_a_wrong_variable_is_named_with_its_value(tmp_path, name, value):
    value = value.format(cuda=tmp_path / "cuda")
    env = {name: value, "PATH": os.environ["PATH"]}
    with pytest.raises(UsageError) as caught:
        identify_cuda(type(tmp_path)(value), env, run)
    assert f"{name}={value} is not a CUDA toolkit" in caught.value.message
    assert "unset the variable" in caught.value.hint


def test_a_toolkit_on_the_path_is_found(toolkit):
    assert find_cuda({"PATH": f"{toolkit}/bin:{os.environ['PATH']}"}) == toolkit


def test_blanks_are_no_toolkit(tmp_path):
    assert find_cuda({"CUDA_HOME": " ", "CUDA_PATH": str(tmp_path)}) == tmp_path

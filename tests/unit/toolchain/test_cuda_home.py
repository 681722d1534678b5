# SPDX-License-Identifier: Apache-2.0
"""Where installed CUDA toolkits have their parts, and what is said of a directory that is none."""

import os
import subprocess

import pytest

from kernforge.errors import UsageError
from kernforge.store.local import Store
from kernforge.system.process import run
from kernforge.toolchain.installed import find_cuda, identify_cuda

NVCC = """#!/bin/sh
case " $* " in *" --version "*) echo "Cuda compilation tools, release 12.4, V12.4.131"; exit ;; esac
here=$(dirname "$0")
{{
echo "#\\$ _HERE_=$here"
echo "#\\$ TOP=$here/.."
echo "#\\$ CICC_PATH=$here/../nvvm/bin"
echo "#\\$ INCLUDES=\\"-I$here/../{include}\\"  "
echo "#\\$ LIBRARIES=  \\"-L$here/../{lib}/stubs\\" \\"-L$here/../{lib}\\""
}} >&2
"""
# Where each layout has its headers and its libraries, and what its nvcc searches.
LAYOUTS = {
    "NVIDIA's installer": ("include", "lib64", "include", "lib64"),
    "conda": (*("targets/x86_64-linux/include", "targets/x86_64-linux/lib"),) * 2,
    "wheels": ("include", "lib", "include", "lib"),
    "a part apart": ("../headers", "lib64", "../headers", "lib64"),
}


def write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS)
def toolkit(request, tmp_path):
    include, lib, searched, linked = request.param
    root = tmp_path / "cuda"
    write(root / "bin" / "nvcc", NVCC.format(include=searched, lib=linked))
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


def test_a_toolkit_on_the_path_is_found_behind_a_script(toolkit, tmp_path):
    write(tmp_path / "scripts" / "nvcc", f'#!/bin/sh\nexec {toolkit}/bin/nvcc "$@"\n')
    env = {"PATH": f"{tmp_path}/scripts:{os.environ['PATH']}"}
    assert find_cuda(env) == toolkit
    assert identify_cuda(find_cuda(env), env, run).locked.release == "12.4.131"


@pytest.mark.parametrize("name", ["CUDA_HOME", "CUDA_PATH", "KERNFORGE_CUDA_HOME"])
@pytest.mark.parametrize("value", [":{cuda}", "~/cuda", "/nowhere"])
def test_a_wrong_variable_is_named_with_its_value(tmp_path, name, value):
    value = value.format(cuda=tmp_path / "cuda")
    env = {name: value, "PATH": os.environ["PATH"]}
    with pytest.raises(UsageError) as caught:
        identify_cuda(type(tmp_path)(value), env, run)
    assert f"{name}={value} is not a CUDA toolkit" in caught.value.message
    assert "unset the variable" in caught.value.hint


def test_blanks_are_no_toolkit(tmp_path):
    assert find_cuda({"CUDA_HOME": " ", "CUDA_PATH": str(tmp_path)}) == tmp_path

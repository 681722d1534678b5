# SPDX-License-Identifier: Apache-2.0
"""The package in torch's place, imported by a Python of its own."""

import json
import shutil
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from kernforge.setuptools import stub
from kernforge.setuptools.target import STUB, named_target
from kernforge.system.console import Console
from kernforge.system.environment import Environment

ROOT = Path(__file__).parents[3]
TEMPLATE = resources.files("kernforge") / "templates" / "torch_stub"


@pytest.fixture
def ask(tmp_path):
    shutil.copytree(str(TEMPLATE), tmp_path / "site")
    values = {"release": "2.11.0+cu130", "cuda": "13.0", "archs": [[8, 0], [9, 0]]}
    (tmp_path / "site/torch" / STUB).write_text(json.dumps(values))

    def call(code, expect=0):
        (tmp_path / "setup.py").write_text(code)
        argv = [sys.executable, "setup.py"]
        env = {"PYTHONPATH": f"{tmp_path}/site:{ROOT}/src", "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            argv, cwd=tmp_path, env=env, capture_output=True, text=True, check=False
        )
        assert (done.returncode == 0) == (expect == 0), done.stderr
        return done.stdout + done.stderr

    return call


def test_stub_answers_setup_py_files(ask):
    ask(
        """
import torch
from torch.__config__ import parallel_info
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension, IS_HIP_EXTENSION
from torch.utils.cpp_extension import ROCM_HOME, _find_rocm_home
from packaging.version import Version

assert torch.__version__.split(".")[:2] == ["2", "11"]
assert torch.__version__ >= (2, 9) and torch.__version__ < "2.12"
assert Version(torch.__version__) > Version("2.11")
assert torch.version.cuda == "13.0" and torch.version.hip is None
assert torch.cuda.is_available() and torch.cuda.device_count() == 1
assert torch.cuda.get_device_capability() == (9, 0)
assert torch.cuda.get_device_properties(0).major == 9
assert torch.cuda.get_arch_list() == ["sm_80", "sm_90"]
assert torch.cuda.is_bf16_supported() and len(torch.cuda.nccl.version()) == 3
assert torch._C._GLIBCXX_USE_CXX11_ABI is True
torch._C._GLIBCXX_USE_CXX11_ABI = False
assert not torch.compiled_with_cxx11_abi()
assert "backend: OpenMP" in parallel_info()
assert not hasattr(torch, "npu") and not torch.xpu.is_available()
assert torch.has_cuda and "compute_90,code=sm_90" in torch.cuda.get_gencode_flags()
assert str(torch.device("cuda")) == "cuda" and torch.device("cuda:1").index == 1
assert not IS_HIP_EXTENSION and ROCM_HOME is None and _find_rocm_home() is None
extension = CUDAExtension("a.b", ["c.cu"], extra_compile_args={"nvcc": ["-O3"]}, dlink=True)
assert extension.kind == "cuda" and "-dlink" in extension.extra_compile_args["nvcc_dlink"]
assert issubclass(BuildExtension.with_options(use_ninja=False), BuildExtension)
"""
    )


def test_names_of_torch_may_be_imported_and_not_used(ask):
    uses = "from torch.utils.cpp_extension import load; load('a', ['a.cpp'])"
    assert "setup.py:2 asks for torch.utils.cpp_extension.load" in ask(f"\n{uses}", expect=1)
    unknown = "import torch.nn as nn\nclass Layer(nn.Module): ...\nfrom torch import nowhere"
    assert "setup.py:3 asks for torch.nowhere, which torch" in ask(unknown, expect=1)


def test_prebuilt_wheel_is_not_downloaded(ask):
    printed = ask(
        """
import torch, urllib.request, urllib.error
try:
    urllib.request.urlretrieve("https://192.0.2.1/x-1.0-cp312-cp312-linux_x86_64.whl", "x.whl")
except urllib.error.HTTPError as error:
    print("as not found:", error.code)
"""
    )
    assert "kernforge builds this wheel and does not fetch" in printed
    assert "as not found: 404" in printed


@pytest.mark.parametrize(("setup", "asks"), [("CppExtension('x', [])", False), ("CUDA_HOME", True)])
def test_toolkit_is_fetched_only_for_setup_py_with_cuda(tmp_path, monkeypatch, setup, asks):
    wanted = named_target("2.11", "13.0", "3.12")
    monkeypatch.setattr(stub.build, "toolchain_directory", lambda *_: tmp_path / "toolkit")
    package = stub.write_package(tmp_path / "site", wanted, [(9, 0)])
    found = stub.variables(
        package, wanted, Environment({}), Console(), packages=tmp_path, setup=setup
    )
    assert ("CUDA_HOME" in found) is asks

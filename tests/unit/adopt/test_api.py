# SPDX-License-Identifier: Apache-2.0
"""A whole project is adopted: files, sections, package, tests; the old one is only read."""

import ast
from pathlib import Path

import pytest

from kernforge.adopt.api import adopt
from kernforge.errors import UsageError
from kernforge.manifest.document import parse
from kernforge.project.api import read_project

SETUP = """
from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension
setup(
    name="My_Ops",
    license="BSD-3-Clause",
    ext_modules=[
        CUDAExtension(
            "my.relu",
            ["relu.cpp", "relu.cu"],
            include_dirs=["include", "/opt/other"],
            define_macros=[("WITH_CUDA", None), ("N", 4)],
            libraries=["cublas"],
            extra_compile_args={
                "cxx": ["-O3", "-fopenmp", "-ffast-math"],
                "nvcc": ["-gencode", "arch=compute_90a,code=sm_90a", "--use_fast_math",
                         "-std=c++17"],
            },
        ),
        CppExtension("my.hypot", ["hypot.cpp"]),
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""
RELU = """#include <torch/extension.h>
#include "common.h"
void launch(const float* x, float* y, int n);
at::Tensor forward(at::Tensor x) { at::Tensor y = at::empty_like(x); return y; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("forward", &forward, "y = max(x, 0)"); }
"""
HYPOT = """#include <torch/extension.h>
double forward(double a, double b) { return a; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, py::arg("a"), py::arg("b") = 1);
}
"""


@pytest.fixture
def old(tmp_path):
    root = tmp_path / "old"
    (root / "include").mkdir(parents=True)
    (root / "setup.py").write_text(SETUP)
    (root / "relu.cpp").write_text(RELU)
    (root / "hypot.cpp").write_text(HYPOT)
    (root / "relu.cu").write_text(
        "void launch(const float* x, float* y, int n) { k<<<1, 1>>>(); }\n"
    )
    (root / "include" / "common.h").write_text("#pragma once\n#include <torch/extension.h>\n")
    (root / "unused.cpp").write_text("")
    return root


def test_setup_py_of_two_modules_becomes_one_project(old, tmp_path):
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    adopted = adopt(old, dest=tmp_path / "new")
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    files = {p.relative_to(tmp_path / "new").as_posix(): p.read_text() for p in adopted.files}
    assert sorted(files) == [
        ".gitignore",
        "build.toml",
        "hypot.cpp",
        "include/common.h",
        "relu.cpp",
        "relu.cu",
        "tests/test_my_ops.py",
        "torch-ext/my_ops/__init__.py",
        "torch-ext/my_ops/hypot.py",
        "torch-ext/my_ops/relu.py",
        "torch-ext/torch_binding.cpp",
    ]
    # Two functions of one name are two operators.
    assert adopted.operators == {
        "hypot.forward": "hypot_forward(float a, float b=1.) -> float",
        "relu.forward": "relu_forward(Tensor x) -> Tensor",
    }
    manifest = read_project(tmp_path / "new").manifest
    assert manifest.general.license == "BSD-3-Clause"
    relu = manifest.kernels["relu_cuda"]
    assert relu.src == ("relu.cpp", "relu.cu", "include/common.h")
    assert relu.include == ("include",)
    assert relu.cxx_flags == ("-DWITH_CUDA", "-DN=4", "-ffast-math")
    assert relu.cuda_flags == ("-DWITH_CUDA", "-DN=4", "--use_fast_math")
    assert set(parse(files["build.toml"]).general.backends) == {"cpu", "cuda"}
    assert files["include/common.h"] == "#pragma once\n#include <torch/types.h>\n"
    for path in (path for path in files if path.endswith(".py")):
        ast.parse(files[path], filename=path)
    # What is not translated is listed in order.
    told = [(r.path, r.kind, r.text.split(":")[0]) for r in adopted.remarks]
    assert [path for path, _, _ in told] == ["relu.cu", *["setup.py"] * 5]
    assert sorted(told) == [
        ("relu.cu", "check", "the launch is on the default stream; pass at"),
        ("setup.py", "changed", "-fopenmp"),
        ("setup.py", "changed", "-gencode arch=compute_90a,code=sm_90a"),
        ("setup.py", "changed", "-std=c++17"),
        ("setup.py", "left", "include directory /opt/other is not in the project"),
        ("setup.py", "left", "ldflags of my.relu, ['-lcublas']"),
    ]


COMPUTES = """
import os, socket, subprocess, sys
import torch
from torch.utils.cpp_extension import CUDA_HOME
nvcc = subprocess.check_output([CUDA_HOME + "/bin/nvcc", "-V"], text=True)
assert "release 1" in nvcc and torch.cuda.is_available()
written = []
for place in (os.path.expanduser("~"), here, "/var/tmp"):
    try:
        open(os.path.join(place, "kernforge-was-here"), "w").close()
        written.append(place)
    except OSError:
        pass
try:
    socket.create_connection(("1.1.1.1", 443), timeout=0.1)
    written.append("network")
except OSError:
    pass
assert not os.path.exists("/etc/passwd"), written
"""


def test_setup_py_runs_in_a_sandbox(old, tmp_path):
    text = (old / "setup.py").read_text().replace("setup(\n", f"{COMPUTES}\nsetup(\n", 1)
    text = f"import os\nhere = os.path.dirname(os.path.abspath(__file__))\n{text}"
    text = text.replace('("N", 4)', '("N", len(written))')
    (old / "setup.py").write_text(text)
    adopt(old, dest=tmp_path / "new")
    relu = read_project(tmp_path / "new").manifest.kernels["relu_cuda"]
    assert relu.cxx_flags == ("-DWITH_CUDA", "-DN=2", "-ffast-math")  # its home and its copy
    assert not list(tmp_path.rglob("kernforge-was-here"))
    assert not Path("/var/tmp/kernforge-was-here").exists()  # noqa: S108


def test_unknown_license_is_a_remark(old, tmp_path):
    setup = old / "setup.py"
    setup.write_text(setup.read_text().replace("BSD-3-Clause", "see LICENSE"))
    adopted = adopt(old, dest=tmp_path / "new")
    assert any('license = "unknown"' in r.text for r in adopted.remarks)
    assert 'license = "unknown"' in (tmp_path / "new/build.toml").read_text()
    given = adopt(old, dest=tmp_path / "given", license="MIT")
    assert not any("license" in remark.text for remark in given.remarks)


def test_files_outside_the_project_are_not_read(old, tmp_path):
    secret = tmp_path / "secret.h"
    secret.write_text("int secret;\n")
    before = (old / "relu.cpp").read_text()
    (old / "relu.cpp").write_text(f'#include "{secret}"\n#include "linked.h"\n{before}')
    (old / "linked.h").symlink_to(secret)
    adopted = adopt(old, dest=tmp_path / "new")
    assert secret.read_text() == "int secret;\n"
    assert all(path.is_relative_to(tmp_path / "new") for path in adopted.files)
    assert not any("secret;" in path.read_text() for path in adopted.files)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("add.py", "import torch\nx = unknown()\n", r"(?s)add\.py:2: NameError.*torch-noarch"),
        ("setup.py", "from setuptools import setup\nsetup(name='x')\n", "no extension of torch in"),
        ("setup.py", "setup(", r"setup\.py:1: SyntaxError"),
        ("setup.py", "load_inline = 1\n", "failed before it named its extensions"),
    ],
)
def test_program_without_extensions_is_refused(tmp_path, name, text, message):
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / name).write_text(text)
    with pytest.raises(UsageError, match=message):
        adopt(tmp_path / "old" / name, dest=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_project_without_operators_is_refused_with_reasons(old, tmp_path):
    (old / "relu.cpp").write_text(RELU.replace("&forward", "&gone"))
    (old / "hypot.cpp").write_text(HYPOT.replace("double a, double b", "py::object o"))
    with pytest.raises(UsageError, match=r"relu\.cpp:5: forward: no declaration of gone"):
        adopt(old, dest=tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_invalid_destination_name_or_source_is_refused(old, tmp_path):
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "mine").write_text("")
    with pytest.raises(UsageError, match="exists already and holds mine"):
        adopt(old, dest=tmp_path / "new")
    with pytest.raises(UsageError, match="is not a kernel name"):
        adopt(old, dest=tmp_path / "other", name="My Ops")
    with pytest.raises(UsageError, match="there is no file or directory"):
        adopt(tmp_path / "nothing")
    with pytest.raises(UsageError, match=r"there is no setup\.py in"):
        adopt(tmp_path / "new")

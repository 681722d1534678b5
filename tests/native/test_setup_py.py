# SPDX-License-Identifier: Apache-2.0
"""Projects with a setup.py, of tutorials and others, built by setuptools, pip and compilers."""

import json
import os
import re
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from support import programs

from kernforge.binary import fatbin
from kernforge.setuptools.python_headers import available

torch = pytest.importorskip("torch")
pytestmark = [pytest.mark.native, pytest.mark.torch]

ROOT = Path(__file__).parents[2]
TUTORIALS = ROOT / "tests" / "tutorials"
BUILD = (sys.executable, "setup.py", "build_ext", "--inplace")
THEIRS, OURS = "from torch.utils.cpp_extension import", "from kernforge.setuptools import"
# A module without torch's headers compiles in a second.
PLAIN = """
#include <Python.h>
#include "value.h"
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(VALUE + BONUS); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "plain", nullptr, 0, methods};
PyMODINIT_FUNC PyInit_plain() { return PyModule_Create(&definition); }
"""
PLAIN_SETUP = """
from setuptools import setup
from kernforge.setuptools import BuildExtension, CppExtension

setup(
    name="plain",
    version="1.0",
    ext_modules=[
        CppExtension(
            "plain",
            ["csrc/plain.cpp"],
            include_dirs=["include"],
            define_macros=[("BONUS", "2")],
            undef_macros=["VALUE"],
            extra_compile_args={"cxx": ["-O1"]},
        )
    ],
    cmdclass={"build_ext": BuildExtension.with_options(use_ninja=False)},
)
"""


@pytest.fixture
def environment(kept_home):
    variables = {**os.environ, "KERNFORGE_HOME": str(kept_home), "TORCH_CUDA_ARCH_LIST": "9.0"}
    variables["PYTHONPATH"] = str(ROOT / "src")
    return variables


def run(*argv, cwd, env, expect=0):
    done = programs.run(argv, cwd=cwd, env=env, expect=expect)
    return done.stdout + done.stderr


@pytest.fixture
def python(forked, environment):
    """A function that runs a program, which finds torch imported."""

    def call(code, cwd, expect=0):
        done = forked("-c", code, cwd=cwd, env=environment, expect=expect)
        return done.stdout + done.stderr

    return call


def tutorial(name, place, *, ours=True):
    """A copy of a tutorial's project; with one import changed if it is to be ours."""
    shutil.copytree(TUTORIALS / name, place)
    setup = place / "setup.py"
    if ours:
        setup.write_text(setup.read_text().replace(THEIRS, OURS))
    return place


@pytest.fixture
def plain(tmp_path):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "include").mkdir()
    (tmp_path / "csrc/plain.cpp").write_text(PLAIN)
    (tmp_path / "include/value.h").write_text("#define VALUE 40\n")
    (tmp_path / "setup.py").write_text(PLAIN_SETUP)
    return tmp_path


@pytest.mark.road
def test_build_ext_inplace_sees_a_changed_header(plain, environment, python):
    first = run(*BUILD, cwd=plain, env=environment)
    printed = python("import torch, plain; print(plain.value())", plain)
    assert printed.split() == ["42"]
    assert "building for torch" in first
    # A change of a header is seen, and so is its way back.
    (plain / "include/value.h").write_text("#define VALUE 50\n")
    run(*BUILD, cwd=plain, env=environment)
    printed = python("import torch, plain; print(plain.value())", plain)
    assert printed.split() == ["52"]


def test_compile_error_names_the_user_file(plain, environment):
    (plain / "csrc/plain.cpp").write_text(PLAIN.replace("VALUE + BONUS", "VALUE + BONUZ"))
    printed = run(*BUILD, cwd=plain, env=environment, expect=1)
    assert "csrc/plain.cpp:4:" in printed
    assert "src/csrc" not in printed
    assert "Traceback" not in printed


def test_why_a_header_is_missing_is_named(plain, environment):
    (plain / "csrc/plain.cpp").write_text(f'#include "mathlib/m.hpp"\n{PLAIN}')
    (plain / "include/mathlib").mkdir()
    (plain / ".gitmodules").write_text('[submodule "m"]\n\tpath = include/mathlib\n\turl = x\n')
    printed = run(*BUILD, cwd=plain, env=environment, expect=1)
    assert "git did not fetch include/mathlib, which may have mathlib/m.hpp" in printed
    assert "git submodule update --init" in printed
    (plain / ".gitmodules").unlink()
    (plain / "PKG-INFO").write_text("")
    printed = run(*BUILD, cwd=plain, env=environment, expect=1)
    assert "MANIFEST.in must name it (`recursive-include csrc *.hpp`)" in printed


def test_cxx_standard_is_raised_to_that_of_torch(plain, environment):
    source = "#include <c10/macros/Macros.h>\nstatic_assert(__cplusplus >= 201703L);\n"
    (plain / "csrc/plain.cpp").write_text(f"{source}{PLAIN}")
    setup = plain / "setup.py"
    setup.write_text(setup.read_text().replace('"-O1"', '"-O1", "-std=c++14"'))
    run(*BUILD, cwd=plain, env=environment)


@pytest.mark.parametrize("flag", ["-rdc=true", "-dc"])
def test_relocatable_device_code_is_linked_without_dlink(plain, environment, python, flag):
    (plain / "csrc/a.cu").write_text("__device__ float helper(float x) { return 2 * x; }\n")
    (plain / "csrc/b.cu").write_text(
        "extern __device__ float helper(float);\n"
        "__global__ void f(float* x) { *x = helper(*x); }\n"
        "void launch(float* x) { f<<<1, 1>>>(x); }\n"
    )
    setup = plain / "setup.py"
    text = setup.read_text().replace("CppExtension", "CUDAExtension")
    text = text.replace('["csrc/plain.cpp"]', '["csrc/plain.cpp", "csrc/a.cu", "csrc/b.cu"]')
    setup.write_text(text.replace('{"cxx": ["-O1"]}', f'{{"nvcc": ["{flag}"]}}'))
    run(*BUILD, cwd=plain, env={**environment, "KERNFORGE_TORCH": "2.11", "KERNFORGE_CUDA": "cpu"})
    assert python("import plain\nprint(plain.value())", plain).split() == ["42"]


def test_one_sided_c_linkage_is_named_with_the_fix(tmp_path, environment, python):
    project = tutorial("my_extension", tmp_path / "project")
    printed = run(*BUILD, cwd=project, env=environment, expect=1)
    assert (
        'launch_fused_relu_scale has extern "C" on one side only (my_op.cpp, my_op.cu)' in printed
    )
    assert 'write extern "C" before launch_fused_relu_scale' in printed
    binding = project / "my_op.cpp"
    binding.write_text(binding.read_text().replace("\nvoid launch", '\nextern "C" void launch'))
    run(*BUILD, cwd=project, env=environment)
    code = "import torch, my_ops; my_ops.fused_relu_scale(torch.ones(4), 2.0)"
    printed = python(code, project, expect=1)
    assert "input must be a CUDA tensor" in printed


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("cuda_ops_project", "from cuda_ops import vector_add, relu; relu.forward(x)"),
        ("custom_ops", "import cuda_add; cuda_add.add(x, x)"),
    ],
)
def test_a_tutorials_project_builds(tmp_path, environment, python, name, code):
    project = tutorial(name, tmp_path / "project")
    run(*BUILD, cwd=project, env=environment)
    printed = python(f"import torch; x = torch.ones(4); {code}", project, expect=1)
    assert re.search("must be a? ?CUDA tensor", printed)


def test_the_development_script_of_many_operators(tmp_path, environment):
    project = tutorial("cuda_ops_project", tmp_path / "project")
    script = project / "compile_dev.py"
    script.write_text(script.read_text().replace(f"{THEIRS} load", "from kernforge import load"))
    printed = run(sys.executable, "compile_dev.py", cwd=project, env=environment)
    assert "softmax: skipped, sources are missing" in printed
    assert "['relu', 'vector_add']" in printed
    # An operator is removed by removing its two files.
    (project / "src/kernels/relu.cu").unlink()
    (project / "src/bindings/relu.cpp").unlink()
    printed = run(sys.executable, "compile_dev.py", cwd=project, env=environment)
    assert "['vector_add']" in printed


# -- with no changed line ------------------------------------------------------------------


def kernforge(*arguments, cwd, env, expect=0):
    return run(sys.executable, "-m", "kernforge", *arguments, cwd=cwd, env=env, expect=expect)


def unchanged(project):
    """The project's setup.py as it would be for torch."""
    setup = project / "setup.py"
    setup.write_text(setup.read_text().replace(OURS, THEIRS))
    return project


def test_pip_install_of_a_tutorial_with_no_changed_line(tmp_path, environment, python):
    project = tutorial("my_extension", tmp_path / "project", ours=False)
    binding = project / "my_op.cpp"
    binding.write_text(binding.read_text().replace("\nvoid launch", '\nextern "C" void launch'))
    site = tmp_path / "site"
    printed = kernforge("pip", "install", "--target", site, ".", cwd=project, env=environment)
    assert "building project for torch" in printed
    assert "KERNFORGE_TORCH)" not in printed  # nobody set it
    if torch.version.cuda is None:
        assert "this torch is a build for the CPU, and setup.py has CUDA sources" in printed
        assert "KERNFORGE_CUDA=13.0" in printed
    assert "actions were run" in printed  # what the build within pip says
    assert re.search(r"Successfully installed my[-_]ops", printed)
    code = "import torch, my_ops; my_ops.fused_relu_scale(torch.ones(4), 2.0)"
    printed = python(code, site, expect=1)
    assert "input must be a CUDA tensor" in printed


def test_pip_wheel_of_a_source_archive_whose_build_requires_torch(plain, tmp_path, environment):
    unchanged(plain)
    (plain / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools", "torch==1.0", "ninja>=99"]\n'
        'build-backend = "setuptools.build_meta"\n'
    )
    top = tmp_path / "archive" / "plain-1.0"
    shutil.copytree(plain, top)
    archive = shutil.make_archive(tmp_path / "plain-1.0", "gztar", top.parent, "plain-1.0")
    out = tmp_path / "out"
    (tmp_path / "requirements.txt").write_text(f"{archive}\n")
    argv = ("pip", "wheel", "--no-deps", "-w", out, "-r", "requirements.txt")
    printed = kernforge(*argv, cwd=tmp_path, env=environment)
    assert "note: the project asks for torch==1.0, and is built for torch" in printed
    (wheel,) = out.glob("*.whl")
    assert wheel.name.startswith("plain-1.0-cp")


def test_an_editable_install(plain, tmp_path, environment):
    unchanged(plain)
    project, venv = tmp_path / "a project", tmp_path / "venv"
    shutil.copytree(plain, project)
    run(sys.executable, "-m", "venv", "--without-pip", venv, cwd=tmp_path, env=environment)
    # With all that this Python has: torch, pip and what kernforge needs.
    (site,) = (venv / "lib").glob("python*/site-packages")
    (site / "all.pth").write_text("\n".join(path for path in sys.path if "site-packages" in path))
    python = venv / "bin/python"
    argv = (python, "-m", "kernforge", "pip", "install", "-e", ".")
    printed = run(*argv, cwd=project, env=environment)
    assert "building a project for torch" in printed
    assert "Successfully installed plain" in printed
    assert "actions were run" in printed  # what the build within pip says
    code = "import torch, plain; print(plain.value(), plain.__file__)"
    value, place = run(python, "-c", code, cwd=venv, env=environment).split(maxsplit=1)
    assert value == "42"
    assert Path(place.strip()).parent == project


def test_verbose_pip_shows_what_setup_py_prints(plain, tmp_path, environment):
    unchanged(plain)
    setup = plain / "setup.py"
    setup.write_text(f"print('chosen by setup.py')\n{setup.read_text()}")
    install = ("pip", "wheel", ".", "--no-deps", "-w", tmp_path / "out")
    assert "chosen by setup.py" not in kernforge(*install, cwd=plain, env=environment)
    assert "chosen by setup.py" in kernforge(*install, "-v", cwd=plain, env=environment)


def test_pip_says_that_a_wheel_is_empty(tmp_path, environment):
    (tmp_path / "setup.py").write_text("from setuptools import setup\nsetup(name='nothing')\n")
    words = ("pip", "wheel", ".", "--no-deps", "--no-build-isolation", "-w", "out")
    printed = kernforge(*words, cwd=tmp_path, env=environment)
    assert "is empty: the project names no extension" in printed


def test_pip_shows_the_failed_line_of_setup_py(plain, environment):
    unchanged(plain)
    setup = plain / "setup.py"
    setup.write_text(f"import torch\ntorch.nn.Linear(2, 2)\n{setup.read_text()}")
    printed = kernforge("pip", "install", ".", cwd=plain, env=environment, expect=1)
    assert "setup.py:2 asks for torch.nn" in printed


def test_wheels_for_many_torch_and_python(plain, tmp_path, environment, python):
    unchanged(plain)
    (plain / "csrc/launch.cu").write_text(
        "__global__ void f() {}\nvoid launch() { f<<<1, 1>>>(); }\n"
    )
    setup = plain / "setup.py"
    text = setup.read_text().replace("CppExtension", "CUDAExtension")
    text = text.replace('["csrc/plain.cpp"]', '["csrc/plain.cpp", "csrc/launch.cu"]')
    setup.write_text(
        text.replace('version="1.0",', 'version="1.0", install_requires=["torch>=2", "numpy"],')
    )
    pythons = sorted(available(os.environ), key=lambda v: int(v.rstrip("t")[2:]))[-2:]
    out = tmp_path / "out"
    printed = kernforge(
        *("wheel", ".", "--torch", "2.9,2.11", "--cuda", "13.0", "--python", ",".join(pythons)),
        *("--out", out, "--json", "--quiet"),
        cwd=plain,
        env=environment,
    )
    wheels = json.loads(printed)["wheels"]
    assert len(wheels) == 2 * len(pythons)
    for wheel in wheels:
        digits = wheel["python"].replace(".", "")
        start = (
            f"plain-1.0+torch{wheel['torch']}.cu130-cp{digits.rstrip('t')}-cp{digits}-manylinux_2_"
        )
        assert Path(wheel["path"]).name.startswith(start)
        assert wheel["requires"] == [f"torch=={wheel['torch']}.*", "numpy"]
        with zipfile.ZipFile(wheel["path"]) as opened:
            (library,) = [name for name in opened.namelist() if name.endswith(".so")]
        assert library == f"plain.cpython-{digits}-x86_64-linux-gnu.so"


@pytest.mark.parametrize(
    ("value", "lacking"),
    [("far2()", "needs libfar4.so.3"), ("close_range(9, 9, 0)", "uses close_range")],
)
def test_only_a_manylinux_wheel_says_so(value, lacking, plain, tmp_path, environment):
    unchanged(plain)
    declared = 'int far2();\nextern "C" int close_range(unsigned, unsigned, int);\n'
    source = PLAIN.replace("BONUS", value).replace(
        "static PyObject*", f"{declared}static PyObject*", 1
    )
    (plain / "csrc/plain.cpp").write_text(source)
    (tmp_path / "far.cpp").write_text("int far2() { return 2; }\n")
    argv = ("g++", "-shared", "-fPIC", "far.cpp", "-o", "libfar4.so.3", "-Wl,-soname=libfar4.so.3")
    run(*argv, cwd=tmp_path, env=environment)
    (tmp_path / "libfar4.so").symlink_to("libfar4.so.3")
    (plain / "setup.cfg").write_text(f"[build_ext]\nlibraries = far4\nlibrary_dirs = {tmp_path}\n")
    for words in (("wheel", "--cuda", "cpu", "--out"), ("pip", "wheel", "--no-deps", "-w")):
        argv = (*words, tmp_path / words[0], ".")
        printed = kernforge(*argv, cwd=plain, env={**environment, "KERNFORGE_TORCH": "2.11"})
        assert f"it {lacking}" in printed
        (wheel,) = (tmp_path / words[0]).glob("*.whl")
        assert wheel.name.endswith("-linux_x86_64.whl")


@pytest.fixture
def limited(plain):
    """The tag of the running Python, for which the project promises the limited API."""
    setup, here = plain / "setup.py", f"cp3{sys.version_info.minor}"
    options = f'options={{"bdist_wheel": {{"py_limited_api": "{here}"}}}}'
    setup.write_text(setup.read_text().replace('version="1.0",', f'version="1.0", {options},'))
    return here


def test_python_older_than_an_abi3_wheel_is_named(plain, limited, tmp_path, environment):
    setup = plain / "setup.py"
    api = 'py_limited_api=True, define_macros=[("Py_LIMITED_API", "0x030B0000"), '
    setup.write_text(setup.read_text().replace("define_macros=[", api))
    plain_ones = (v for v in available(os.environ) if not v.endswith("t"))
    older = [v for v in plain_ones if int(v[2:]) < sys.version_info.minor]
    if not older:
        pytest.skip("there are headers of one Python here")
    pythons = f"3.{sys.version_info.minor},{older[0]}"
    asked = ("--python", pythons, "--torch", "2.11", "--cuda", "cpu")
    printed = kernforge("wheel", ".", *asked, "--out", tmp_path / "out", cwd=plain, env=environment)
    assert f"no wheel for Python {older[0]}: setup.py says {limited}-abi3" in printed
    (wheel,) = (tmp_path / "out").glob("*.whl")
    assert f"-{limited}-abi3-" in wheel.name


@pytest.mark.usefixtures("limited")
def test_abi3_wheel_beyond_the_limited_api_is_refused(plain, tmp_path, environment):
    asked = ("--python", f"3.{sys.version_info.minor}", "--torch", "2.11", "--cuda", "cpu")
    value = "PyLong_FromLong(VALUE + BONUS)"
    beyond = PLAIN.replace(value, '(PyObject*)PyCode_NewEmpty("a", "b", VALUE)')
    (plain / "csrc/plain.cpp").write_text(beyond)
    argv = ("wheel", ".", *asked, "--out", tmp_path / "out")
    said = kernforge(*argv, cwd=plain, env=environment, expect=6)
    assert "says abi3, and" in said
    assert "uses what is not in that limited API: PyCode_NewEmpty (never)" in said
    assert not [*(tmp_path / "out").glob("*.whl")]


CUDA_12 = """
import re, subprocess
from setuptools import setup
from kernforge.setuptools import CUDA_HOME, BuildExtension, CUDAExtension

said = subprocess.run([f"{CUDA_HOME}/bin/nvcc", "-V"], capture_output=True, text=True).stdout
assert re.search(r"release (\\d+\\.\\d+)", said)[1] == "12.8", said
setup(
    name="plain",
    version="1.0",
    ext_modules=[
        CUDAExtension(
            "plain",
            ["csrc/plain.cpp", "csrc/device.cu"],
            include_dirs=["include"],
            define_macros=[("BONUS", "2")],
            extra_compile_args={"nvcc": [FLAG]},
        )
    ],
    cmdclass={"build_ext": BuildExtension},
)
"""


def test_device_code_for_cuda_12_from_wheels(plain, tmp_path, environment):
    (plain / "csrc/device.cu").write_text(
        "static_assert(CUDART_VERSION == 12080 && __CUDACC_VER_MAJOR__ == 12);\n"
        "template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }\n"
        "template __global__ void twice(float*);\n"
    )
    env = {**environment, "KERNFORGE_TORCH": "2.11", "KERNFORGE_CUDA": "12.8"}
    command = (sys.executable, "setup.py", "build_ext", "--build-lib", tmp_path / "out")
    (plain / "setup.py").write_text(CUDA_12.replace("FLAG", '"-rdc=true"'))
    said = run(*command, cwd=plain, env=env, expect=1)
    assert "device.cu is compiled with '-rdc=true'" in said
    assert "KERNFORGE_CUDA_HOME" in said
    (plain / "setup.py").write_text(CUDA_12.replace("FLAG", '"-lineinfo"'))
    run(*command, cwd=plain, env={**env, "TORCH_CUDA_ARCH_LIST": "9.0+PTX"})
    (library,) = (tmp_path / "out").glob("*.so")
    assert fatbin.architectures(library.read_bytes()).ptx == ("9.0",)
    ((arch, cubin),) = fatbin.cubins(library.read_bytes())
    assert (arch, int.from_bytes(cubin[20:24], "little")) == ("9.0", 128)
    assert b"libcudart.so.12" in library.read_bytes()

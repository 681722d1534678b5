# SPDX-License-Identifier: Apache-2.0
"""Files of `export` are built by their tools; programs use the variables of `shell`."""

import functools
import importlib.util
import json
import os
import sys
from pathlib import Path

import pytest
from support import projects
from support.programs import run

pytestmark = pytest.mark.native

CUDA = "torch-stable-abi210-cu130-x86_64-linux"
TOOLS = Path(sys.executable).parent
needs_cmake = pytest.mark.skipif(
    not importlib.util.find_spec("cmake"), reason="pip install cmake ninja"
)
NOARCH = """[general]
name = "times-two"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu", "cuda"]

[torch-noarch]
"""
TVM_FFI = """[general]
name = "times-two"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]

[tvm-ffi]
src = ["tvm-ffi-ext/binding.cpp"]
"""
TVM_BINDING = """#include <tvm/ffi/function.h>
static int64_t times_two(int64_t x) { return 2 * x; }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(times_two, times_two);
"""


@pytest.fixture
def kernforge_cli(kernforge_cli):
    """With this environment's tools on the path."""
    path = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    return functools.partial(kernforge_cli, env={"PATH": path})


def _pip(*arguments, home):
    """pip for a torch that may be a CUDA build: what is installed here is built for the CPU."""
    argv = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "--no-deps"]
    argv += ["--no-index", "-q", *arguments]
    run(argv, KERNFORGE_CUDA="cpu", KERNFORGE_HOME=home)


@pytest.fixture
def python(forked):
    """A function that runs a program with a directory on its path and returns what it prints."""
    return lambda code, path: forked("-c", code, PYTHONPATH=path).stdout.strip()


BY_REPO_ID = "kernforge.get_kernel('me/times-two', version=1, backend='cpu')"
CODE = "import torch, times_two; print(times_two.times_two(torch.arange(3.0)).tolist())"


def test_pip_installs_an_exported_project(kernforge_cli, tmp_path, python, kept_home):
    root = projects.write(tmp_path / "p", backends=("cpu", "cuda"))
    kernforge_cli("export", root, "--to", tmp_path / "out", "--only", "python")
    _pip("--target", tmp_path / "site", tmp_path / "out", home=kept_home)
    assert python(CODE, tmp_path / "site") == "[0.0, 2.0, 4.0]"
    (wheel,) = tmp_path.glob("site/*.dist-info/WHEEL")
    assert "cp39-abi3-linux" in wheel.read_text()
    # What pip does for -e, without touching this environment.
    argv = (sys.executable, "setup.py", "build_ext", "--inplace")
    run(argv, cwd=tmp_path / "out", KERNFORGE_CUDA="cpu", KERNFORGE_HOME=kept_home)
    package = tmp_path / "out/torch-ext"
    assert python(CODE, package) == "[0.0, 2.0, 4.0]"
    (package / "times_two/__init__.py").write_text("def times_two(x): return x")
    assert python(CODE, package) == "[0.0, 1.0, 2.0]"


def test_pip_installs_a_project_of_python_alone(kernforge_cli, tmp_path, python, kept_home):
    root = tmp_path / "p"
    (root / "torch-ext/times_two").mkdir(parents=True)
    (root / "build.toml").write_text(NOARCH)
    (root / "torch-ext/times_two/__init__.py").write_text("from ._ops import ops\n")
    kernforge_cli("export", root, "--to", tmp_path / "out")
    assert not (tmp_path / "out/CMakeLists.txt").exists()
    _pip("--target", tmp_path / "site", tmp_path / "out", home=kept_home)
    code = "import times_two; print(times_two.ops.name)"
    assert python(code, tmp_path / "site").startswith("_times_two_")


def _cmake(root, build):
    """Configure and build an export for the CPU, as a user of CMake does."""
    made = ("-DGPU_LANG=CPU", f"-DPython3_EXECUTABLE={sys.executable}")
    for argv in (("cmake", "-S", root, "-B", build, *made), ("cmake", "--build", build)):
        run(argv, PATH=f"{TOOLS}{os.pathsep}{os.environ['PATH']}")


@needs_cmake
def test_cmake_builds_a_kernel_that_includes_headers_of_kernforge(kernforge_cli, tmp_path, python):
    kernel = Path(__file__).parents[2] / "kernels" / "relu-scale"
    kernforge_cli("export", kernel, "--to", tmp_path / "out", "--only", "cmake")
    _cmake(tmp_path / "out", tmp_path / "b")
    call = "relu_scale.relu_scale(torch.tensor([-1.0, 2.0]), 3.0)"
    code = f"import torch, relu_scale; print({call}.tolist())"
    assert python(code, tmp_path / "out/torch-ext") == "[0.0, 6.0]"


@needs_cmake
def test_cmake_builds_a_tvm_ffi_project(kernforge_cli, tmp_path, python):
    root = tmp_path / "p"
    package = root / "tvm-ffi-ext/times_two"
    package.mkdir(parents=True)
    (root / "build.toml").write_text(TVM_FFI)
    (root / "tvm-ffi-ext/binding.cpp").write_text(TVM_BINDING)
    (package / "__init__.py").write_text("from ._ops import ops\n")
    kernforge_cli("export", root, "--to", tmp_path / "out", "--only", "cmake")
    _cmake(tmp_path / "out", tmp_path / "b")
    code = "import times_two; print(times_two.ops.times_two(21))"
    assert python(code, tmp_path / "out/tvm-ffi-ext") == "42"


@needs_cmake
def test_the_cuda_section_compiles_in_the_shell_of_its_variant(kernforge_cli, tmp_path):
    cuda = '#include "kernforge/elementwise.cuh"\n' + projects.CU
    root = projects.write(tmp_path / "p", backends=("cpu", "cuda"), cu=cuda)
    out, build = tmp_path / "out", tmp_path / "b"
    kernforge_cli("export", root, "--to", out, "--only", "cmake")
    shell = ["shell", root, "--variant", CUDA, "--"]
    made = ["-DGPU_LANG=CUDA", f"-DPython3_EXECUTABLE={sys.executable}"]
    kernforge_cli(*shell, "cmake", "-S", out, "-B", build, *made)
    kernforge_cli(*shell, "cmake", "--build", build)
    (library,) = (out / "torch-ext/times_two").glob("_times_two_cuda_*.abi3.so")
    assert b"sm_90" in library.read_bytes()
    assert library.name.removesuffix(".abi3.so") in (library.parent / "_ops.py").read_text()


def test_editors_see_the_stores_headers_and_every_command_compiles(kernforge_cli, tmp_path):
    cpu = '#include "kernforge/elementwise.h"\n' + projects.CPP
    root = projects.write(tmp_path / "p", backends=("cpu", "cuda"), stable=False, cpp=cpu)
    kernforge_cli("export", root, "--only", "editor")
    entries = json.loads((root / "compile_commands.json").read_text())
    paths = [entry["file"] for entry in entries]
    assert paths == ["times_two.cpp", "times_two.cu", "torch-ext/torch_binding.cpp"]
    clangd = TOOLS / "clangd"
    for entry in entries:
        argv, directory = entry["arguments"], entry["directory"]
        if not entry["file"].endswith(".cu"):
            run([*argv, "-fsyntax-only"], cwd=directory)
        elif clangd.exists():
            check = [clangd, f"--check={entry['file']}", f"--compile-commands-dir={directory}"]
            run(check, cwd=directory)


def test_a_variants_shell_has_its_compilers_headers_and_package(kernforge_cli, tmp_path):
    root = projects.write(tmp_path, backends=("cpu", "cuda"))
    said = json.loads(kernforge_cli("shell", root, "--variant", CUDA, "--json").stdout)
    assert said["variant"] == CUDA
    assert said["built"] is None
    assert (Path(said["environment"]["CUDA_HOME"]) / "bin/nvcc").is_file()
    script = (
        f"cd {tmp_path} && nvcc --version && echo '#include <torch/csrc/stable/tensor.h>' > a.cpp "
        "&& $CXX -std=c++20 -fsyntax-only a.cpp && exit 7"
    )
    shell = ["shell", root, "--variant"]
    done = kernforge_cli(*shell, CUDA, "--", "sh", "-c", script, expect=7)
    assert "release 13.0" in done.stdout
    with (root / "build.toml").open("a") as manifest:
        manifest.write('[general.hub]\nrepo-id = "me/times-two"\n')
    kernforge_cli("build", root, "--variant", "*-cpu-*")
    done = kernforge_cli(*shell, "*-cpu-*", "--", sys.executable, "-c", CODE)
    assert done.stdout.strip() == "[0.0, 2.0, 4.0]"
    by_name = f"import kernforge, torch; times_two = {BY_REPO_ID}; {CODE.partition('; ')[2]}"
    done = kernforge_cli(*shell, "*-cpu-*", "--", sys.executable, "-c", by_name)
    assert done.stdout.strip() == "[0.0, 2.0, 4.0]"


def test_shell_names_a_program_that_cannot_start(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    done = kernforge_cli("shell", root, "--", "no-such-program", expect=2)
    assert "no-such-program" in done.stderr
    (tmp_path / "text").write_text("")
    done = kernforge_cli("shell", root, "--", tmp_path / "text", expect=2)
    assert "cannot be run" in done.stderr

# SPDX-License-Identifier: Apache-2.0
"""Modules that are compiled and loaded in this process, with the installed torch."""

import gc
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from support import jit_homes, processes, projects

import kernforge
from kernforge.errors import (
    BuildError,
    KernforgeError,
    MissingPackageError,
    StorageError,
    UsageError,
)
from kernforge.system import process
from kernforge.toolchain import host_compiler, installed, lockfile

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]

# A module without torch's headers compiles in a second, one with them in half a minute.
PLAIN = """
#include <Python.h>
static PyObject* value(PyObject*, PyObject*) { return PyLong_FromLong(%s); }
static PyMethodDef methods[] = {{"value", value, METH_NOARGS, ""}, {nullptr, nullptr, 0, nullptr}};
#define CONCAT_(A, B) A##B
#define CONCAT(A, B) CONCAT_(A, B)
#define TEXT_(A) #A
#define TEXT(A) TEXT_(A)
static PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, TEXT(TORCH_EXTENSION_NAME), nullptr, 0, methods};
PyMODINIT_FUNC CONCAT(PyInit_, TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
using torch::stable::Tensor;
int64_t factor();
Tensor times(const Tensor& x) {
  Tensor y = torch::stable::empty_like(x);
  auto* from = static_cast<const float*>(x.data_ptr());
  auto* to = static_cast<float*>(y.data_ptr());
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = factor() * from[i];
  return y;
}
STABLE_TORCH_LIBRARY(jit_times, m) { m.def("times(Tensor x) -> Tensor"); }
STABLE_TORCH_LIBRARY_IMPL(jit_times, CPU, m) { m.impl("times", TORCH_BOX(&times)); }
"""
FACTOR = "#include <cstdint>\nint64_t factor() { return %d; }\n"


home = jit_homes.home


def plain(name, value, **more):
    return kernforge.load_inline(name, PLAIN % value, no_implicit_headers=True, **more)


def results(home):
    return sorted((home / "store" / "actions").glob("??/" + "?" * 64))


@pytest.mark.road
def test_an_edit_gives_a_new_module_and_the_old_one_stays(home):
    first = plain("edited", 1)
    second = plain("edited", 2)
    assert (first.value(), second.value()) == (1, 2)
    before = results(home)
    assert plain("edited", 1) is first
    assert results(home) == before


def test_other_arguments_for_the_same_sources_rebuild_the_module(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    source = tmp_path / "a.cpp"
    source.write_text(PLAIN % 3)
    assert kernforge.load("ways", source, is_python_module=False).endswith("ways.so")
    assert kernforge.load("ways", source).value() == 3
    source.write_text("#include <cuda_runtime.h>\n" + PLAIN % 4)
    assert kernforge.load("ways", source, with_cuda=True).value() == 4
    with pytest.raises(BuildError, match=r"cuda_runtime\.h"):
        kernforge.load("ways", source)


@pytest.mark.parametrize(
    ("include", "flags"),
    [
        ('#include "machine/value.h"\n', ()),
        ("#include <value.h>\n", ("-isystem", "{}")),
        ("#define NAMED(name) <name.h>\n#include NAMED(value)\n", ("-Wp,-I,{}",)),
    ],
    ids=["project", "search path", "macro"],
)
def test_a_changed_header_rebuilds_the_module(tmp_path, monkeypatch, include, flags):
    header, source = tmp_path / "machine" / "value.h", tmp_path / "a.cpp"
    header.parent.mkdir()
    source.write_text(include + PLAIN % "VALUE")
    flags = [flag.format(header.parent) for flag in flags]
    for value in (1, 2, 3):
        if value == 3:  # as another process, of what the store has
            jit_homes.forget(monkeypatch)
        header.write_bytes(b"// \xa9 Latin-1\n#define VALUE %d\n" % value)
        made = kernforge.load("on_disk", [str(source)], extra_cflags=flags)
        assert made.value() == value


@pytest.mark.parametrize(
    ("forbids", "path", "said"),
    [
        ("1", os.environ["PATH"], "KERNFORGE_NO_COMPILE=1 forbids"),
        ("1", "/nowhere", "KERNFORGE_NO_COMPILE=1 forbids"),
        ("", "/nowhere", "no C++ compiler is installed"),
    ],
)
def test_the_store_serves_where_nothing_can_be_compiled(home, tmp_path, forbids, path, said):
    source = tmp_path / "on_disk.cpp"
    source.write_text(PLAIN % 2)
    plain("inline", 1)
    kernforge.load("on_disk", source)
    program = (
        "import kernforge, sys\n"
        "load = lambda text: kernforge.load_inline('inline', text, no_implicit_headers=True)\n"
        "assert load(sys.argv[1]).value() == 1\n"
        "assert kernforge.load('on_disk', sys.argv[3]).value() == 2\n"
        "try:\n"
        "    load(sys.argv[2])\n"
        "except kernforge.errors.ToolchainError as error:\n"
        "    assert error.message.startswith('inline.so is not in the store'), error.message\n"
        "    assert sys.argv[4] in error.message, error.message\n"
        "    assert 'compiled from cpp_sources:' in error.hint, error.hint\n"
        "else:\n"
        "    raise SystemExit('it compiled')\n"
    )
    argv = [sys.executable, "-c", program, PLAIN % 1, PLAIN % 3, source, said]
    environment = {"KERNFORGE_HOME": str(home), "PATH": path, "KERNFORGE_NO_COMPILE": forbids}
    subprocess.run(argv, env=environment, check=True)


@pytest.mark.parametrize("fails", ["*", "*-[cM]*"], ids=["driver", "cc1plus"])
def test_a_compiler_that_needs_a_library_path_gets_it(tmp_path, monkeypatch, fails):
    """Compilers of module systems do."""
    words, compiler = "libisl.so.23: cannot open shared object file", tmp_path / "g++"
    compiler.write_text(
        f'#!/bin/sh\ncase "$LD_LIBRARY_PATH,$*" in {tmp_path},*) exec /usr/bin/g++ "$@";;\n'
        f'{fails}) echo {words!r} >&2; exit 127;; esac\nexec /usr/bin/g++ "$@"\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    with pytest.raises(KernforgeError, match=words):
        plain("module_system", 1)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    assert plain("module_system", 1).value() == 1


@pytest.mark.parametrize("inline", [True, False])
def test_debug_information_names_files_that_exist(tmp_path, inline):
    header, text = tmp_path / "h" / "mine.h", "#include <mine.h>\n" + PLAIN % "mine()"
    header.parent.mkdir()
    header.write_text("inline int mine() { return 7; }\n")
    flags = {"extra_cflags": ["-g"], "extra_include_paths": [header.parent]}
    if inline:
        module = kernforge.load_inline("debugged", text, no_implicit_headers=True, **flags)
    else:
        source = tmp_path / "debugged.cpp"
        source.write_text(text)
        module = kernforge.load("debugged", source, **flags)
    dump = ["readelf", "--debug-dump=rawline", "-W", module.__file__]
    printed = subprocess.check_output(dump, text=True)
    folders = re.findall(r"^ +\d+\t\(line_strp\).*: (\S+)$", printed, re.MULTILINE)
    named = re.findall(r"^ +\d+\t\(udata\)\t(\d+)\t.*: (\S+)$", printed, re.MULTILINE)
    paths = {Path(folders[0], folders[int(folder)], name) for folder, name in named}
    assert header in paths, printed
    assert [path for path in paths if not path.is_file()] == []


def test_line_information_for_profilers_names_a_file_that_exists(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    text = "__global__ void twice(float* x) { x[threadIdx.x] *= 2; }\n"
    flags = {"extra_cuda_cflags": ["-lineinfo"], "no_implicit_headers": True}
    path = kernforge.load_inline("lined", "", text, is_python_module=False, **flags)
    (folder,) = set(re.findall(rb"/[\w./-]+/jit/sources/\w+", Path(path).read_bytes()))
    assert text in Path(folder.decode(), "cuda_sources").read_text()


def test_an_error_names_the_users_file_and_line_once(tmp_path, capfd):
    source = tmp_path / "wrong.cpp"
    source.write_text("int good;\nint wrong = nonsense;\n" + PLAIN % 1)
    with pytest.raises(BuildError, match=rf"{source}:2:13: error: .*nonsense.*"):
        kernforge.load("wrong", [str(source)])
    assert "nonsense" not in capfd.readouterr().err  # the exception holds it


def test_a_source_without_a_module_says_what_to_write():
    with pytest.raises(BuildError, match=r"PYBIND11_MODULE\(TORCH_EXTENSION_NAME"):
        kernforge.load_inline("nothing", "int x;", no_implicit_headers=True)


@pytest.mark.parametrize("python", [True, False])
def test_a_missing_function_is_named_as_it_is_written(python):
    """Torch's loader of operators does not say what the dynamic loader said."""
    text = "int missing(long);\nint idle = missing(1);\n" + (PLAIN % 1 if python else "")
    with pytest.raises(
        BuildError, match=r"undefined cannot be imported: missing\(long\) is named in cpp_sources:1"
    ):
        kernforge.load_inline("undefined", text, no_implicit_headers=True, is_python_module=python)


def test_a_wrong_schema_is_an_error_and_not_the_end_of_the_process(home):
    source = """#include <torch/library.h>
TORCH_LIBRARY(jit_wrong, m) {
  m.def("plus(Tensor x, flot a) -> Tensor");
}
"""
    with pytest.raises(BuildError, match=r"^cpp_sources:3: error: .*unknown type") as caught:
        kernforge.load_inline("wrong", source, is_python_module=False)
    assert "~~~~ <--- HERE" in caught.value.message
    assert not results(home)


def test_a_changed_linked_library_rebuilds_the_module(tmp_path):
    """An object, and a library by its name, that somebody else makes."""
    text = 'extern "C" int given();\n' + PLAIN % "given()"
    for value in (1, 2):
        (tmp_path / "given.c").write_text(f"int given(void) {{ return {value}; }}\n")
        for line in ("gcc -fPIC -c given.c", "ar rcs libgiven.a given.o"):
            subprocess.run(line.split(), check=True, cwd=tmp_path)
        for flags in ([str(tmp_path / "given.o")], [f"-L{tmp_path}", "-lgiven"]):
            made = kernforge.load_inline(
                "linked", text, no_implicit_headers=True, extra_ldflags=flags
            )
            assert made.value() == value


def test_a_compilers_warnings_are_reported_with_verbose(tmp_path, capfd, monkeypatch):
    source = tmp_path / "warns.cpp"
    source.write_text(PLAIN % 1 + "static int idle;\n")
    kernforge.load("warns", source, extra_cflags=["-Wall"])
    assert "idle" not in capfd.readouterr().err
    jit_homes.forget(monkeypatch)  # as another process, which finds it in the store
    kernforge.load("warns", source, extra_cflags=["-Wall"], verbose=True)
    assert f"{source}:" in (said := capfd.readouterr().err)
    assert "warning: 'idle' defined but not used" in said


def test_the_module_is_put_into_the_build_directory(tmp_path):
    plain("placed", 1, build_directory=tmp_path / "out")
    assert (tmp_path / "out" / "placed.so").is_file()
    (tmp_path / "out" / "placed.so").unlink()
    plain("placed", 1, build_directory=tmp_path / "out")
    assert (tmp_path / "out" / "placed.so").is_file()
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match=r"file/placed\.so: File exists"):
        plain("placed", 1, build_directory=tmp_path / "file")


def test_distinct_builds_leak_nothing_but_their_code(home):
    def held():
        """Open files, threads, resident bytes, and whatever of the store is mapped."""
        with open("/proc/self/maps") as stream:  # noqa: PTH123
            files = {line.split()[-1] for line in stream if str(home) in line}
        with open("/proc/self/statm") as stream:  # noqa: PTH123
            resident = int(stream.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        # The meter of programs that run lives a moment longer than they.
        names = sorted(t.name for t in threading.enumerate() if t.name != "kernforge-meter")
        return len(os.listdir("/proc/self/fd")), names, resident, files  # noqa: PTH208

    for number in range(10):
        assert plain("distinct", number).value() == number
    # What earlier tests of this process left may be closed meanwhile, so fewer is no fault.
    gc.collect()
    open_, threads, resident, files = held()
    for number in range(10, 40):
        assert plain("distinct", number).value() == number
    after = held()
    assert after[0] <= open_
    assert set(after[1]) <= set(threads)
    modules = after[3] - files
    assert len(modules) == 30
    assert all(path.endswith("/distinct.so") for path in modules)
    assert after[2] - resident < 30 * 2**20 / 4  # a module is a few pages


def test_operators_of_each_build_live_on_and_bindings_are_reused(home):
    sources = lambda factor: [STABLE, FACTOR % factor]  # noqa: E731

    def ask(factor):
        # Two files, as one would write them: the binding does not change.
        binding, other = home / "binding.cpp", home / "factor.cpp"
        text = sources(factor)
        if not binding.exists():
            binding.write_text(text[0])
        other.write_text(text[1])
        kernforge.load("jit_times", [str(binding), str(other)], is_python_module=False)
        return torch.ops.jit_times.times

    x = torch.ones(3)
    first = ask(2)
    before = len(results(home))
    second = ask(3)
    assert len(results(home)) - before == 3  # factor.cpp, the names, the link
    graph = torch.fx.Graph()
    graph.output(graph.call_function(second.default, (graph.placeholder("x"),)))
    module = torch.fx.GraphModule({}, graph)
    assert ask(4)(x).tolist() == [4.0] * 3
    assert second(x).tolist() == module(x).tolist() == [3.0] * 3
    assert first(x).tolist() == ask(2)(x).tolist() == [2.0] * 3


def test_a_killed_process_blocks_nobody(home):
    program = (
        "import kernforge, sys, torch\n"
        "print('begun', flush=True)\n"
        "kernforge.load_inline('killed', sys.argv[1], no_implicit_headers=True)\n"
    )
    random.seed(5)
    argv = [sys.executable, "-c", program, PLAIN % 9]
    for _ in range(4):
        with processes.start(
            argv, start_new_session=True, stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout.readline() == "begun\n"
            time.sleep(random.random())
            os.killpg(process.pid, signal.SIGKILL)
    assert plain("killed", 9).value() == 9


TUTORIAL = """
at::Tensor plus(at::Tensor x, double a) { TORCH_CHECK(a > 0, a); return x + a; }
struct Times : torch::autograd::Function<Times> {
  static at::Tensor forward(torch::autograd::AutogradContext* ctx, at::Tensor x, double a) {
    ctx->saved_data["a"] = a;
    return x * a;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* ctx,
                                                 torch::autograd::variable_list grads) {
    return {grads[0] * ctx->saved_data["a"].toDouble(), at::Tensor()};
  }
};
at::Tensor times(at::Tensor x, double a) { return Times::apply(x, a); }
"""


def test_a_gpu_is_needed_only_to_choose_an_architecture(tmp_path, monkeypatch):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST", raising=False)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    source = tmp_path / "a.cpp"
    source.write_text("#include <cuda_runtime.h>\n" + PLAIN % "CUDART_VERSION / 1000")
    with pytest.raises(BuildError, match=r"cuda_runtime\.h") as caught:
        kernforge.load("headers", source)
    assert "load_inline(with_cuda=True)" in caught.value.hint
    assert kernforge.load("headers", source, with_cuda=True).value() >= 12
    kernel = tmp_path / "k.cu"
    kernel.write_text("__global__ void k(float* x) { x[0] = 1; }\n")
    with pytest.raises(UsageError, match="no GPU is visible, and TORCH_CUDA_ARCH_LIST"):
        kernforge.load("kernel", kernel, is_python_module=False)
    flags = ["-gencode", "arch=compute_80,code=sm_80"]
    kernforge.load("kernel", kernel, is_python_module=False, extra_cuda_cflags=flags)


@pytest.mark.road
def test_functions_are_bound_with_the_headers_of_the_installed_torch(home, kept_home):
    """After an edit the earlier module stays as it is; so do the nodes of autograd that it made."""
    jit_homes.lend_results(home, kept_home)
    module = kernforge.load_inline("bound", TUTORIAL, functions=["plus", "times"])
    assert module.plus(torch.ones(2), 2.0).tolist() == [3.0, 3.0]
    assert module.plus.__doc__.endswith("plus\n")
    with pytest.raises(RuntimeError, match="-1"):
        module.plus(torch.ones(2), -1.0)
    x = torch.ones(2, requires_grad=True)
    loss = module.times(x, 3.0).sum()
    jit_homes.keep_results(home, kept_home)
    edit = TUTORIAL.replace("x + a", "x - a").replace("grads[0] *", "-grads[0] *")
    edited = kernforge.load_inline("bound", edit, functions=["plus", "times"])
    assert edited.plus(torch.ones(2), 2.0).tolist() == [-1.0, -1.0]
    assert module.plus(torch.ones(2), 2.0).tolist() == [3.0, 3.0]
    later = edited.times(x, 5.0).sum()
    loss.backward()
    assert x.grad.tolist() == [3.0, 3.0]
    later.backward()
    assert x.grad.tolist() == [-2.0, -2.0]


SLIM = """
#include <torch/extension.h>
torch::Tensor plus(torch::Tensor x, double a) {
  TORCH_CHECK(a > 0, "a is ", a);
  auto y = torch::zeros({x.size(0)}, torch::dtype(torch::kFloat64).requires_grad(true));
  return torch::cat({x + a, 2 - x, y});
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("plus", &plus, py::arg("x"), py::arg("a")); }
"""


def test_slim_headers_compile_what_a_source_uses(home, kept_home):
    jit_homes.lend_results(home, kept_home)
    module = kernforge.load_inline("slim", SLIM, no_implicit_headers=True)
    made = module.plus(x=torch.ones(2), a=2.0)
    assert made.tolist() == [3.0, 3.0, 1.0, 1.0, 0.0, 0.0]
    assert made.requires_grad
    with pytest.raises(RuntimeError, match="a is -1"):
        module.plus(torch.ones(2), -1.0)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        module.plus("x", 1.0)
    jit_homes.keep_results(home, kept_home)


def test_a_source_that_uses_more_falls_back_to_all_headers(home, kept_home):
    jit_homes.lend_results(home, kept_home)
    more = SLIM.replace("return torch::cat", "x = x + at::get_num_threads();\n  return torch::cat")
    module = kernforge.load_inline("more", more, no_implicit_headers=True)
    assert module.plus(torch.zeros(1), 1.0)[0].item() == 1 + torch.get_num_threads()
    jit_homes.keep_results(home, kept_home)


PAGE = Path(__file__).parents[2] / "docs/how-to/author/add-gradients.md"


def test_the_page_on_gradients_runs(home, kept_home):
    jit_homes.lend_results(home, kept_home)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 4
    names = {}
    for block in blocks:
        exec(block, names)  # noqa: S102
    # Torch's headers for autograd alone, and not all: the note of a second attempt is not there.
    assert not list((home / "store").rglob("whole"))
    jit_homes.keep_results(home, kept_home)
    x = names["x"]
    for function in (names["cube"], names["module"].cube_cpp):
        x.grad = None
        function(x).sum().backward()
        assert x.grad.tolist() == pytest.approx((3 * x.detach() ** 2).tolist())


def test_a_project_is_built_and_loaded(tmp_path):
    # Other tests of this process load the same sources, built otherwise.
    cpp = projects.CPP + "// for the JIT"
    root = projects.write(tmp_path / "times-two", backends=("cpu",), cpp=cpp)
    module = kernforge.load(root)
    assert kernforge.load(root) is module


def test_a_function_of_a_project_that_no_source_defines_is_reported_by_name_and_place(tmp_path):
    cpp = '#include "times_two.h"\nvoid times_2_cpu(const float*, float*, int64_t) {}\n'
    root = projects.write(tmp_path / "times-two", backends=("cpu",), cpp=cpp)
    with pytest.raises(
        BuildError, match=r"times_two_cpu\(float const\*, float\*, long\)"
    ) as caught:
        kernforge.load(root)
    assert "is named in times_two.h:" in caught.value.message
    assert "build.toml's src" in caught.value.hint


def test_a_project_in_a_process_without_torch_says_so(tmp_path, monkeypatch):
    root = projects.write(tmp_path / "times-two", backends=("cpu",))
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingPackageError, match="torch, which is not installed") as caught:
        kernforge.load(root)
    assert caught.value.hint == "pip install torch"


SETUP = """
from setuptools import setup
from kernforge.setuptools import BuildExtension, CppExtension
setup(name="roads", ext_modules=[CppExtension("roads", ["roads.cpp"])],
      cmdclass={"build_ext": BuildExtension})
"""
OFFLINE = {
    "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
    "PIP_NO_INDEX": "",
    "PIP_CONFIG_FILE": "/dev/null",
}


def _by_load(root):
    kernforge.load("roads", [root / "roads.cpp"])


def _by_setup_py(root):
    (root / "setup.py").write_text(SETUP)
    argv = [sys.executable, "setup.py", "build_ext", "--inplace"]
    source = str(Path(kernforge.__file__).parents[1])
    subprocess.run(argv, cwd=root, env=os.environ | {"PYTHONPATH": source}, check=True)


def _of_a_project(root):
    cpp = f"#include <Python.h>\n{projects.CPP}"
    kernforge.load(projects.write(root / "times-two", backends=("cpu",), cpp=cpp))


@pytest.mark.parametrize("road", [_by_load, _by_setup_py, _of_a_project])
def test_each_road_takes_the_compiler_and_headers_of_this_machine_offline(
    tmp_path, home, monkeypatch, road
):
    for name, value in OFFLINE.items():
        monkeypatch.setenv(name, value)
    header = "#include <torch/headeronly/version.h>\n"
    (tmp_path / "roads.cpp").write_text(header + PLAIN % 7)
    road(tmp_path)
    used = lockfile.from_json(next(home.glob("used-*.lock")).read_text())
    records = home / "store/compilers"
    torch_tree = installed.identify_torch(Path(torch.__file__).parent, records)
    compiler = host_compiler.find(os.environ, process.run)
    assert used.compilers["cxx"] == host_compiler.locked(compiler, process.run, records)
    assert used.trees["python"] == installed.identify_python()
    (tree,) = (tree for name, tree in used.trees.items() if name.startswith("torch"))
    assert tree.digest == torch_tree.locked.digest

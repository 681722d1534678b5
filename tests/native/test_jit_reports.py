# SPDX-License-Identifier: Apache-2.0
"""``load`` and ``load_inline``: public bug reports on loaders of extensions, mistakes, threads."""

import importlib.machinery
import logging
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from native.test_jit import FACTOR, PLAIN, STABLE
from support import jit_homes, projects

import kernforge
from kernforge.errors import BuildError, ToolchainError

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]
home = jit_homes.home


@pytest.fixture(autouse=True)
def arch(monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")


def inline(name, text, cuda=None, **more):
    return kernforge.load_inline(name, text, cuda, no_implicit_headers=True, **more)


def test_each_module_has_its_own_static_variables_also_after_an_edit():
    text = "inline int& shared() { static int x = %d; return x; }\n" + PLAIN % "shared()"
    modules = [inline(name, text % value) for name, value in (("w1", 1), ("w2", 2), ("w1", 3))]
    assert [module.value() for module in modules] == [1, 2, 3]


def test_an_element_of_flags_with_blanks_is_one_argument():
    module = inline("scaled", PLAIN % "SCALE", extra_cflags=["-DSCALE=(1 + 1)", "-O1 -g"])
    assert module.value() == 2


HELPER = "__device__ float helper(float x) { return x + 1; }\n"
CALLER = """extern __device__ float helper(float);
__global__ void k(float* x) { x[0] = helper(x[0]); }
void launch(float* x) { k<<<1, 1>>>(x); }
"""
PARENT = """__global__ void child(float* x) { x[0] = 1; }
__global__ void parent(float* x) { child<<<1, 1>>>(x); }
void launch(float* x) { parent<<<1, 1>>>(x); }
"""


@pytest.fixture
def linked(tmp_path):
    """Load CUDA sources with flags for nvcc; returns the path of the module."""

    def load(*sources, flags=()):
        for number, text in enumerate(sources):
            (tmp_path / f"{number}.cu").write_text(text)
        paths = [tmp_path / f"{number}.cu" for number in range(len(sources))]
        return kernforge.load("linked", paths, extra_cuda_cflags=flags, is_python_module=False)

    return load


@pytest.mark.parametrize(
    ("sources", "flags"),
    [
        ((HELPER, CALLER), ["-rdc true"]),
        ((HELPER, CALLER), ["-dc", "-gencode", "arch=compute_80,code=sm_80"]),
        ((PARENT,), ["-rdc=true"]),  # a kernel launches a kernel
    ],
)
def test_relocatable_device_code_is_linked(linked, sources, flags):
    assert linked(*sources, flags=flags).endswith("linked.so")


@pytest.mark.parametrize("flags", [[], ["-gencode", "arch=compute_52,code=sm_52"], ["-arch=sm_52"]])
def test_a_gpu_that_the_toolkit_lacks_is_named(linked, monkeypatch, flags):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "5.2")
    with pytest.raises(ToolchainError, match=r"has no code for GPUs of"):
        linked(HELPER, flags=flags)


@pytest.mark.parametrize("sources", [(HELPER, CALLER), (PARENT,)])
def test_device_code_that_needs_a_link_says_what_to_add(linked, sources):
    with pytest.raises(BuildError) as caught:
        linked(*sources)
    assert "add -rdc=true to nvcc's flags (extra_cuda_cflags" in caught.value.hint


def test_an_operator_that_torch_switches_off_is_named_in_a_line(linked):
    kernel = "__global__ void k(__half* a) { a[0] = a[0] + a[1]; }\n"
    with pytest.raises(BuildError) as caught:
        linked("#include <cuda_fp16.h>\n" + kernel)
    assert "-U__CUDA_NO_HALF_OPERATORS__" in caught.value.hint
    assert linked("#include <cuda_fp16.h>\n" + kernel, flags=["-U__CUDA_NO_HALF_OPERATORS__"])


def test_a_file_system_without_programs_is_named(monkeypatch):
    """As a home directory that is mounted with noexec."""

    def refuse(*_):
        raise ImportError("x.so: failed to map segment from shared object")

    monkeypatch.setattr(importlib.machinery.ExtensionFileLoader, "create_module", refuse)
    with pytest.raises(BuildError, match="failed to map segment") as caught:
        inline("noexec", PLAIN % 1)
    assert "KERNFORGE_HOME" in caught.value.hint


# -- mistakes in sources that were given fewer headers than torch's ------------------------

SLIM = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
int64_t twice(int64_t number) { return 2 * %s; }
STABLE_TORCH_LIBRARY(jit_mistake, m) { m.def("twice(int number) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(jit_mistake, CompositeExplicitAutograd, m) {
  m.impl("twice", TORCH_BOX(&twice));
}
"""
SCALE = """torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  auto* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = a * x.data_ptr<float>()[i];
  return y;
}
"""
DEVICE = "__global__ void k(float* x) {\n  x[0] = %s;\n}\n"


@pytest.mark.parametrize(
    ("sources", "functions", "message"),
    [
        ((SLIM % "nubmer", None), None, "'nubmer' was not declared"),
        ((SLIM % "number", DEVICE % "nonsense"), None, r"cuda_sources\(2\): error: .*nonsense"),
        (
            (SCALE.replace("empty_like(x);", "empty_lik(x);"), None),
            "scale",
            "cpp_sources:3:19: error: 'empty_lik' is not a member",
        ),
        (
            (SCALE.replace("like(x);", "like(x)"), None),
            "scale",
            r"cpp_sources:4:3: error: expected .* before 'auto'",
        ),
    ],
)
def test_a_final_error_is_not_compiled_again(caplog, sources, functions, message):
    caplog.set_level(logging.INFO, "kernforge")
    with pytest.raises(BuildError, match=message) as caught:
        kernforge.load_inline(
            "mistaken", *sources, functions=functions, is_python_module=bool(functions)
        )
    assert caught.value.__context__ is None
    assert "compiling again" not in caplog.text


def test_slim_headers_are_tried_again_after_a_mistake(caplog):
    caplog.set_level(logging.INFO, "kernforge")
    # Names that torch's headers use, so that these may be what the source lacks. The compiler ends
    # at the first error, which is before the headers: that takes no time.
    for name in ("layout", "device"):
        source = f"int first = {name};\n#include <torch/types.h>\n" + SCALE
        with pytest.raises(BuildError, match=f"'{name}' was not declared"):
            kernforge.load_inline(
                "mistaken", source, extra_cflags=["-Wfatal-errors"], is_python_module=False
            )
        assert "compiling again" in caplog.text
        caplog.clear()


# -- threads that compile and load at the same time ----------------------------------------


def at_once(*functions):
    """Call functions in threads that begin at the same time; their results in order."""
    start = threading.Barrier(len(functions))

    def call(function):
        start.wait()
        return function()

    with ThreadPoolExecutor(len(functions)) as threads:
        return list(threads.map(call, functions))


def test_two_names_that_register_one_op_namespace():
    """The second has an op namespace of its own, and both keep their operators."""
    binding = STABLE.replace("jit_times", "jit_threads")
    seen = []

    def load(name, factor):
        sources = [binding, FACTOR % factor]
        kernforge.load_inline(name, sources, is_python_module=False)
        seen.append(torch.ops.jit_threads.times.default.name())

    at_once(lambda: load("threads_one", 2), lambda: load("threads_two", 3))
    x = torch.ones(1)
    for name, factor in (("threads_one", 2), ("threads_two", 3), ("threads_one", 2)):
        load(name, factor)  # shows its own
        assert torch.ops.jit_threads.times(x).item() == factor
    assert len({*seen}) == 2


def test_one_name_with_two_texts():
    def load(value):
        return kernforge.load_inline("threads_edit", PLAIN % value, no_implicit_headers=True)

    values = (1, 2, 1, 2)
    modules = at_once(*(lambda v=value: load(v) for value in values))
    assert tuple(module.value() for module in modules) == values
    assert len({id(module) for module in modules}) == 2


def test_one_project_and_a_copy_of_it(tmp_path):
    cpp = f"{projects.CPP}// for threads of the JIT"
    roots = [
        projects.write(tmp_path / name / "times-two", backends=("cpu",), cpp=cpp)
        for name in ("first", "copy")
    ]
    loads = [lambda root=root: kernforge.load(root) for root in (*roots, *roots)]
    modules = at_once(*loads)
    assert len({id(module) for module in modules}) == 1
    x = torch.arange(3.0)
    assert modules[0].times_two(x).tolist() == [0.0, 2.0, 4.0]

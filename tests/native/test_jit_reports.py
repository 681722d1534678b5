# SPDX-License-Identifier: Apache-2.0
"""Public bug reports on loaders of extensions, one of a kind, at ``load`` and ``load_inline``."""

import importlib.machinery

import pytest
from native.test_jit import PLAIN
from support import jit_homes

import kernforge
from kernforge.errors import BuildError, KernforgeError, ToolchainError

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
    "flags",
    [
        ["-rdc true"],
        ["-dc", "-gencode", "arch=compute_80,code=sm_80"],
    ],
    ids=" ".join,
)
def test_relocatable_device_code_is_linked(linked, flags):
    assert linked(HELPER, CALLER, flags=flags).endswith("linked.so")


@pytest.mark.parametrize("flags", [[], ["-gencode", "arch=compute_52,code=sm_52"], ["-arch=sm_52"]])
def test_a_gpu_that_the_toolkit_lacks_is_refused_before_its_compiler_runs(
    linked, monkeypatch, flags
):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "5.2")
    with pytest.raises(ToolchainError, match=r"does not compile for 5\.2: it has .*9\.0") as caught:
        linked(HELPER, flags=flags)
    assert "CUDA 7.0 to 12.9" in caught.value.hint


def test_a_kernel_that_launches_a_kernel_is_linked(linked):
    assert linked(PARENT, flags=["-rdc=true"])


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
    assert "note #" not in caught.value.message
    assert linked("#include <cuda_fp16.h>\n" + kernel, flags=["-U__CUDA_NO_HALF_OPERATORS__"])


def test_device_code_for_other_gpus_is_refused(linked, monkeypatch):
    kernel = "__global__ void k(float* x) { x[0] = 1; }\n"
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _=0: (9, 0))
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0")
    with pytest.raises(BuildError, match=r"has device code for 8\.0, and the GPU here is of 9\.0"):
        linked(kernel)
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")
    assert linked(kernel)


def test_a_file_system_without_programs_is_named(monkeypatch):
    """As a home directory that is mounted with noexec."""

    def refuse(*_):
        raise ImportError("x.so: failed to map segment from shared object")

    monkeypatch.setattr(importlib.machinery.ExtensionFileLoader, "create_module", refuse)
    with pytest.raises(BuildError, match="failed to map segment") as caught:
        inline("noexec", PLAIN % 1)
    assert "KERNFORGE_HOME" in caught.value.hint


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda top: kernforge.load("near", f"{top}/vector_ad.cu"),
            "/vector_add.cu?",
        ),
        (
            lambda _: kernforge.load_inline(
                "near", "int add(int a) { return a; }", functions=["ad"]
            ),
            "'ad', which no source defines\ndid you mean 'add'?",
        ),
    ],
    ids=["path", "function"],
)
def test_a_sure_mistake_is_told_before_a_compiler_starts(home, tmp_path, call, said):
    (tmp_path / "vector_add.cu").write_text("")
    with pytest.raises(KernforgeError) as caught:
        call(tmp_path)
    assert said in str(caught.value)
    assert not list(home.glob("store/actions/*/*"))

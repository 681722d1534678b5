# SPDX-License-Identifier: Apache-2.0
"""Public bug reports of loaders of extensions, at ``load`` and ``load_inline``; each stands for a kind."""

import pytest
from native.test_jit import PLAIN
from support import jit_homes

import kernforge
from kernforge.errors import BuildError, UsageError

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


def test_a_stray_word_among_flags_is_named():
    with pytest.raises(UsageError, match="extra_cflags has 'Wall', in which 'Wall' is neither"):
        inline("stray", PLAIN % 1, extra_cflags=["Wall"])


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

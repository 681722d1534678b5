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

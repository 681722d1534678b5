# SPDX-License-Identifier: Apache-2.0
"""Mistakes in sources that were given fewer headers than torch's, with the installed torch."""

import pytest
from support import jit_homes

import kernforge
from kernforge.errors import BuildError
from kernforge.jit import advice, mistakes, session

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
int64_t twice(int64_t number) { return 2 * %s; }
STABLE_TORCH_LIBRARY(jit_mistake, m) { m.def("twice(int number) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(jit_mistake, CompositeExplicitAutograd, m) {
  m.impl("twice", TORCH_BOX(&twice));
}
"""


home = jit_homes.home


@pytest.fixture
def told(monkeypatch):
    """What was said of second attempts."""
    found = []
    monkeypatch.setattr(advice, "show_retry", lambda _session, output: found.append(output))
    return found


def test_a_misspelt_name_is_reported_at_once(told):
    with pytest.raises(BuildError, match="'nubmer' was not declared") as caught:
        kernforge.load_inline("mistaken", STABLE % "nubmer", is_python_module=False)
    assert caught.value.__context__ is None
    assert not told


SOURCE = """torch::Tensor scale(torch::Tensor x, double a) {
  TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  auto y = torch::empty_like(x);
  auto* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = a * x.data_ptr<float>()[i];
  return y;
}
"""


@pytest.mark.parametrize(
    ("edit", "message", "reads"),
    [
        (("like(x);", "like(x)"), r"cpp_sources:4:3: error: expected .* before 'auto'", 0),
        (
            ("is_contiguous()", "is_contigous()"),
            "cpp_sources:2:17: error: .* has no member named",
            0,
        ),
        (("empty_like", "empty_lik"), "cpp_sources:3:19: error: 'empty_lik' is not a member", 1),
        (("return y;", "return n;"), "cpp_sources:6:10: error: 'n' was not declared in this sc", 2),
    ],
)
def test_a_mistake_beside_cut_headers_is_reported_at_once(told, monkeypatch, edit, message, reads):
    """Nothing is compiled twice, nothing in the background, and no more headers are read than needed."""
    read, real = [], mistakes._preprocess
    monkeypatch.setattr(mistakes, "_preprocess", lambda *a: read.append(a) or real(*a))
    with pytest.raises(BuildError, match=message) as caught:
        kernforge.load_inline("mistaken", SOURCE.replace(*edit), functions="scale")
    assert caught.value.__context__ is None
    assert not told
    assert len(read) == reads
    assert not session.PROCESS.background


def test_a_mistake_in_cuda_is_reported_at_once(told, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    cuda = "__global__ void k(float* x) {\n  x[0] = nonsense;\n}\n"
    with pytest.raises(BuildError, match=r'cuda_sources\(2\): error: identifier "nonsense"'):
        kernforge.load_inline("mistaken", STABLE % "number", cuda, is_python_module=False)
    assert not told


def test_a_name_that_torchs_headers_may_bring_is_sought_in_them(told, home, kept_home):
    jit_homes.lend_results(home, kept_home)
    # This one is not there either, so that the second attempt is seen to be all that is told.
    with pytest.raises(BuildError, match="nubmer") as caught:
        kernforge.load_inline(
            "mistaken", STABLE % "(RECORD_FUNCTION(nubmer), 1)", is_python_module=False
        )
    assert caught.value.__context__ is None
    assert len(told) == 1
    jit_homes.keep_results(home, kept_home)

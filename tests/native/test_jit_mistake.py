# SPDX-License-Identifier: Apache-2.0
"""Mistakes in sources that were given fewer headers than torch's, with the installed torch."""

import pytest
from support import jit_homes

import kernforge
from kernforge.errors import BuildError
from kernforge.jit import advice, torch_headers

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch]

STABLE = """
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/tensor.h>
int64_t twice(int64_t number) { return 2 * %s; }
STABLE_TORCH_LIBRARY(jit_mistake, m) { m.def("twice(int number) -> int"); }
STABLE_TORCH_LIBRARY_IMPL(jit_mistake, CompositeExplicitAutograd, m) {
  m.impl("twice", TORCH_BOX(&twice));
}
"""


@pytest.fixture(autouse=True)
def home(tmp_path, kept_home, monkeypatch):
    """A store of its own."""
    jit_homes.make(tmp_path / "home", kept_home, monkeypatch)
    jit_homes.forget(monkeypatch)


@pytest.fixture
def told(monkeypatch):
    """What was said of second attempts."""
    found = []
    monkeypatch.setattr(advice, "show_retry", lambda _session, output: found.append(output))
    return found


def test_a_misspelt_name_is_told_at_once(told):
    with pytest.raises(BuildError, match="'nubmer' was not declared") as caught:
        kernforge.load_inline("mistaken", STABLE % "nubmer", is_python_module=False)
    assert caught.value.__context__ is None
    assert not told


def test_a_misspelt_name_beside_cut_headers_is_told_at_once(told, monkeypatch):
    shortened = []
    fell_short = torch_headers.fell_short
    monkeypatch.setattr(torch_headers, "fell_short", lambda o: shortened.append(o) or fell_short(o))
    source = "torch::Tensor twice(torch::Tensor number) { return nubmer; }\n"
    with pytest.raises(BuildError, match="'nubmer' was not declared") as caught:
        kernforge.load_inline("mistaken", source, functions="twice")
    assert caught.value.__context__ is None
    assert len(shortened) == 1
    assert not told


def test_a_name_that_torchs_headers_may_bring_is_sought_in_them(told):
    # This one is not there either, so that the second attempt is seen to be all that is told.
    with pytest.raises(BuildError, match="nubmer") as caught:
        kernforge.load_inline(
            "mistaken", STABLE % "(TORCH_CHECK(number, nubmer), 1)", is_python_module=False
        )
    assert caught.value.__context__ is None
    assert len(told) == 1

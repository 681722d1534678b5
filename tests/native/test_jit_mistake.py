# SPDX-License-Identifier: Apache-2.0
"""Mistakes in sources that were given fewer headers than torch's, with the installed torch."""

import pytest
from support import jit_homes

import kernforge
from kernforge.errors import BuildError

torch = pytest.importorskip("torch")

pytestmark = [pytest.mark.native, pytest.mark.torch, pytest.mark.usefixtures("home")]
home = jit_homes.home

STABLE = """
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
KERNEL = "__global__ void k(float* x) {\n  x[0] = %s;\n}\n"


@pytest.mark.parametrize(
    ("sources", "functions", "message"),
    [
        ((STABLE % "nubmer", None), None, "'nubmer' was not declared"),
        ((STABLE % "number", KERNEL % "nonsense"), None, r"cuda_sources\(2\): error: .*nonsense"),
        (
            (
                STABLE % "number",
                "#include <torch/types.h>\nstruct uchar3 { int x; };\n" + KERNEL % 1,
            ),
            None,
            r"cuda_sources\(2\): error: .*already been defined",
        ),
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
def test_a_final_error_is_not_compiled_again(capfd, monkeypatch, sources, functions, message):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "9.0")
    with pytest.raises(BuildError, match=message) as caught:
        kernforge.load_inline(
            "mistaken", *sources, functions=functions, is_python_module=bool(functions)
        )
    assert caught.value.__context__ is None
    assert "compiling again" not in capfd.readouterr().err


def test_slim_headers_are_tried_again_after_a_mistake(capfd):
    # Names that torch's headers use, so that these may be what the source lacks. The compiler ends
    # at the first error, which is before the headers: that takes no time.
    for name in ("layout", "device"):
        source = f"int first = {name};\n#include <torch/types.h>\n" + SCALE
        with pytest.raises(BuildError, match=f"'{name}' was not declared"):
            kernforge.load_inline(
                "mistaken", source, extra_cflags=["-Wfatal-errors"], is_python_module=False
            )
        assert "compiling again" in capfd.readouterr().err

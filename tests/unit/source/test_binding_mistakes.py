# SPDX-License-Identifier: Apache-2.0
"""What the text of a project says of a kernel that no machine here can import."""

import pytest

from kernforge.source import binding_mistakes

BINDING = """#include "registration.h"
Tensor grey(Tensor x) { return x; }
TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) { ops.def("img2gray(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL_EXPAND(TORCH_EXTENSION_NAME, CUDA, ops) { ops.impl("img2gray", &grey); }
REGISTER_EXTENSION(TORCH_EXTENSION_NAME)
"""
PYTHON = "from ._ops import ops\n\n\ndef grey(x):\n    return ops.img2gray(x)\n"


OTHER = 'TORCH_LIBRARY_FRAGMENT(TORCH_EXTENSION_NAME, m) { m.def("of_another_backend() -> ()"); }'


def mistakes(binding, python):
    sources = {"b.cpp": binding, "n.h": "#define NAMESPACE TORCH_EXTENSION_NAME"}
    everything = {**sources, "other.cu": OTHER}
    return sorted(binding_mistakes.find(sources, everything, {"__init__.py": python}))


def test_a_right_project_has_no_mistake():
    assert mistakes(BINDING, PYTHON) == []


@pytest.mark.parametrize(
    ("old", "new", "place", "words"),
    [
        ("REGISTER_EXTENSION(TORCH", "// (TORCH", "b.cpp:3", "no source has REGISTER_EXTENSION"),
        (
            "LIBRARY_EXPAND(TORCH_EXTENSION_NAME",
            "LIBRARY(my",
            "b.cpp:3",
            "defines img2gray, which ",
        ),
        ("IMPL_EXPAND(TORCH_EXTENSION_NAME", "IMPL(my", "b.cpp:4", "defined in another namespace"),
        ('impl("img2gray"', 'impl("img2grey"', "b.cpp:4", "implements img2grey, and no source"),
        ("ops.img2gray(x)", "ops.img2grey(x)", "__init__.py:5", "the operator img2grey, which"),
        ("ops.img2gray(x)", "ops.grau.default(x)", "__init__.py:5", "the operator grau, which"),
        ("return ops", "return _ops.ops.f(x) + ops", "__init__.py:5", "the operator f,"),
        ("\n\n\n", "\nfake(add_op_namespace_prefix('im2gray'))\n", "__init__.py:2", "im2gray"),
    ],
)
def test_what_cannot_work_is_named_with_its_line(old, new, place, words):
    first, *_ = mistakes(BINDING.replace(old, new), PYTHON.replace(old, new))
    assert f"{first.path}:{first.line}" == place
    assert words in first.problem


def test_a_typo_is_told_the_near_name():
    (only,) = mistakes(BINDING, PYTHON.replace("ops.img", "ops.im"))
    assert only.fix == "write img2gray"


@pytest.mark.parametrize(
    ("binding", "python"),
    [
        (BINDING, PYTHON + "if hasattr(ops, 'fast'):\n    ops.fast()\n"),
        (BINDING, PYTHON + "@custom_op(add_op_namespace_prefix('f'))\ndef f(x): ...\nops.f()\n"),
        (BINDING, "from ._ops import ops\ndef f(ops_):\n    ops = g()\n    ops.anything()\n"),
        (BINDING, "from torch import ops\nops.aten.add(1, 2)\n"),
        (BINDING, PYTHON + "ops.of_another_backend()\n"),
        (BINDING.replace('"img2gray(Tensor x) ', 'NAME "(Tensor x) '), PYTHON),
        (BINDING.replace("TORCH_EXTENSION_NAME, ops", "NAMESPACE, ops"), PYTHON),
        (BINDING.replace("REGISTER_EXTENSION(", "PyMODINIT_FUNC PyInit_own("), PYTHON),
        (BINDING + 'TORCH_LIBRARY_IMPL(aten, CUDA, m) { m.impl("relu", &grey); }', PYTHON),
    ],
)
def test_what_may_work_is_accepted(binding, python):
    assert mistakes(binding, python) == []

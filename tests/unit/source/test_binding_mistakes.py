# SPDX-License-Identifier: Apache-2.0
"""pybind11 in a kernel project, and namespaces that nobody fills."""

import pytest

from kernforge.source.binding_mistakes import pybind_modules, unfilled_namespaces

OWN = "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops) {}\n"
FIXED = "#include <torch/library.h>\nTORCH_LIBRARY(img2gray, ops) {}\n"
CALLS_OWN = "import torch\nfrom ._ops import ops\n\n\ndef f(x):\n    return ops.f(x)\n"
CALLS_FIXED = (
    "import torch\nfrom . import _ops\n\n\ndef f(x):\n    return torch.ops.img2gray.f(x)\n"
)


def test_a_pybind_module_is_named_with_its_line():
    text = (
        "// PYBIND11_MODULE(a, m)\n#ifdef X\n#endif\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    )
    (found,) = pybind_modules({"binding.cpp": text})
    assert str(found).startswith("binding.cpp:4: PYBIND11_MODULE makes a module for one Python")
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)" in found.fix


@pytest.mark.parametrize(
    "text",
    [
        "// PYBIND11_MODULE(a, m)\n",
        '"PYBIND11_MODULE(a, m)"',
        "#ifdef P\nPYBIND11_MODULE(a, m)\n#endif\n",
    ],
)
def test_pybind_in_comments_strings_and_conditions_is_ignored(text):
    assert not [*pybind_modules({"binding.cpp": text})]


def test_a_fixed_name_that_the_package_does_not_call():
    (found,) = unfilled_namespaces({"b.cpp": FIXED}, {"t/__init__.py": CALLS_OWN})
    assert str(found) == (
        "b.cpp:2: operators are registered in torch.ops.img2gray, and t/__init__.py:2 calls them "
        "in the namespace of the build (TORCH_EXTENSION_NAME, `ops` of ._ops), which nothing "
        "registers"
    )
    assert "call torch.ops.img2gray in Python" in found.fix


def test_the_builds_namespace_that_the_package_does_not_call():
    (found,) = unfilled_namespaces({"b.cpp": OWN}, {"t/__init__.py": CALLS_FIXED})
    assert "b.cpp:1: operators are registered in the namespace of the build" in str(found)
    assert "t/__init__.py:6 calls them in torch.ops.img2gray" in str(found)
    assert "`from ._ops import ops` in t/__init__.py" in found.fix


@pytest.mark.parametrize(
    ("binding", "package"),
    [
        (OWN, CALLS_OWN),
        (
            OWN,
            CALLS_OWN.replace("from ._ops import ops", "from . import _ops").replace(
                "ops.f", "_ops.ops.f"
            ),
        ),
        (FIXED, CALLS_FIXED),
        (
            FIXED,
            CALLS_FIXED.replace("import torch\n", "from ._ops import ops\nimport torch\n") + OWN,
        ),
        (OWN, CALLS_OWN + "y = torch.ops.torchvision.nms\n"),
        (OWN + FIXED, CALLS_FIXED + CALLS_OWN),
        (OWN, "import torch\n"),
        (OWN, CALLS_FIXED + 'torch.library.define("img2gray::f", "(Tensor x) -> Tensor")\n'),
        ("TORCH_LIBRARY_IMPL(aten, CUDA, m) {}\n", "import torch\ntorch.ops.aten.add\n"),
        (OWN, "not python ("),
    ],
)
def test_namespaces_that_match_are_accepted(binding, package):
    assert not [*unfilled_namespaces({"b.cpp": binding}, {"t/__init__.py": package})]

# SPDX-License-Identifier: Apache-2.0
"""pybind11 in a kernel project."""

import pytest

from kernforge.source.binding_mistakes import pybind_modules


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

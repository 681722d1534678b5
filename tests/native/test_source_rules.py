# SPDX-License-Identifier: Apache-2.0
"""Mistakes of sources that ``kernforge build`` names with their line and the fix."""

import pytest
from support import projects

pytestmark = pytest.mark.native


def edit(root, path, old, new):
    text = (root / path).read_text()
    assert old in text
    (root / path).write_text(text.replace(old, new))


def test_pybind11_is_refused_before_anything_is_compiled(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    edit(
        root, "torch-ext/torch_binding.cpp", "REGISTER_EXTENSION(", "PYBIND11_MODULE(x, m) {}\n// ("
    )
    done = kernforge_cli("build", root, expect=5)
    lines = (root / "torch-ext/torch_binding.cpp").read_text().splitlines()
    number = lines.index("PYBIND11_MODULE(x, m) {}") + 1
    assert f"torch-ext/torch_binding.cpp:{number}: PYBIND11_MODULE makes a module" in done.stderr
    assert "TORCH_LIBRARY_EXPAND(TORCH_EXTENSION_NAME, ops)" in done.stderr
    assert not (root / "build").exists()


@pytest.mark.parametrize(
    ("written", "says"),
    [
        ("Tensor x) -> (", "torch cannot read the schema"),
        ("Tensor x, int n) -> Tensor", "says 2 arguments, C++ takes 1 in times_two"),
        ("Tensor? x) -> Tensor", "says Tensor? x, C++ takes const Tensor& x in times_two"),
    ],
)
def test_a_wrong_schema_is_refused_before_anything_is_compiled(
    kernforge_cli, tmp_path, written, says
):
    root = projects.write(tmp_path)
    edit(root, "torch-ext/torch_binding.cpp", "Tensor x) -> Tensor", written)
    done = kernforge_cli("build", root, expect=5)
    assert says in done.stderr
    assert "torch-ext/torch_binding.cpp:" in done.stderr
    assert not (root / "build").exists()


def test_extern_c_on_one_side_is_named_right_after_linking(kernforge_cli, tmp_path):
    root = projects.write(tmp_path)
    edit(root, "times_two.cpp", '#include "times_two.h"\n', "#include <cstdint>\n")
    edit(root, "times_two.cpp", "void times_two_cpu", 'extern "C" void times_two_cpu')
    done = kernforge_cli("build", root, expect=6)
    assert 'times_two_cpu has extern "C" on one side only (times_two.cpp,' in done.stdout
    assert 'write extern "C" before times_two_cpu' in done.stdout
    assert "unresolved" not in done.stdout
    assert "undefined symbol" not in done.stdout

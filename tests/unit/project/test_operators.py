# SPDX-License-Identifier: Apache-2.0
"""An operator is added whole or not at all, and what was there keeps its text."""

import ast

import pytest
from support.programs import check_style
from support.scaffolds import scaffold

from kernforge.errors import UsageError
from kernforge.manifest.document import parse
from kernforge.project.api import read_project
from kernforge.project.operators import add_operator


@pytest.fixture(params=["full", "gradient", "minimal"])
def project(request, tmp_path):
    scaffold("my-relu", dest=tmp_path / "project", layout=request.param)
    return tmp_path / "project"


def snapshot(root):
    return {p.relative_to(root).as_posix(): p.read_text() for p in root.rglob("*") if p.is_file()}


def lines_gone(before, after):
    return [line for line in before.splitlines() if line not in after.splitlines()]


def test_new_files_and_lines(project):
    before = snapshot(project)
    added = add_operator(read_project(project), "my-square")
    after = snapshot(project)
    assert sorted(after.keys() - before.keys()) == [
        "my_square.cu",
        "tests/test_my_square.py",
        "torch-ext/my_relu/_my_square.py",
        "torch-ext/my_square_binding.cpp",
    ]
    assert {
        p.relative_to(project).as_posix() for p in added.written
    } == after.keys() - before.keys()
    changed = {path for path in before if before[path] != after[path]}
    assert changed == {"build.toml", "torch-ext/my_relu/__init__.py"}
    assert set(lines_gone(before["build.toml"], after["build.toml"])) <= {
        'src = ["torch-ext/torch_binding.cpp"]'
    }
    manifest = parse(after["build.toml"])
    assert manifest.framework.src == (
        "torch-ext/torch_binding.cpp",
        "torch-ext/my_square_binding.cpp",
    )
    assert manifest.kernels["my_square_cuda"].src == ("my_square.cu",)
    read_project(project)


def test_the_package_has_the_function_and_keeps_the_rest(project):
    before = snapshot(project)["torch-ext/my_relu/__init__.py"]
    for name in ("zeta", "alpha"):
        add_operator(read_project(project), name)
    after = snapshot(project)["torch-ext/my_relu/__init__.py"]
    assert lines_gone(before, after) == ['__all__ = ["my_relu"]']
    assert '__all__ = ["alpha", "my_relu", "zeta"]' in after
    imports = [line for line in after.splitlines() if line.startswith("from .")]
    assert imports == [
        "from ._alpha import alpha",
        "from ._ops import add_op_namespace_prefix, ops",
        "from ._zeta import zeta",
    ]
    ast.parse(after)


def test_new_files_are_formatted_and_linted(project):
    check_style(project, add_operator(read_project(project), "square").written)


def test_a_cpu_project_gets_no_device_code(tmp_path):
    scaffold("my-relu", dest=tmp_path / "p", backends=("cpu",))
    added = add_operator(read_project(tmp_path / "p"), "square")
    assert not [path for path in added.written if path.suffix == ".cu"]
    assert set(parse((tmp_path / "p/build.toml").read_text()).kernels) == {"my_relu_cpu"}


def test_a_matching_pattern_needs_no_new_line(project):
    path = project / "build.toml"
    text = path.read_text().replace(
        '["torch-ext/torch_binding.cpp"]\nstable', '["torch-ext/*.cpp"]\nstable'
    )
    path.write_text(text.replace('["my_relu.cu"', '["*.cu"'))
    before = path.read_text()
    add_operator(read_project(project), "square")
    assert path.read_text() == before
    # With patterns, an operator goes by its files and its line in the package.
    for name in ("square.cu", "torch-ext/square_binding.cpp"):
        (project / name).unlink()
    read_project(project)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("My Op", "is not a name for an operator"),
        ("x", "is not a name for an operator"),
        ("1st", "is not a name for an operator"),
        ("class", "cannot be the name of a function"),
        ("my-relu", "is the name of the package"),
    ],
)
def test_unusable_names_are_refused(project, name, message):
    before = snapshot(project)
    with pytest.raises(UsageError, match=message):
        add_operator(read_project(project), name)
    assert snapshot(project) == before


def test_nothing_is_written_on_a_conflict(project):
    (project / "tests/test_square.py").write_text("mine")
    before = snapshot(project)
    with pytest.raises(UsageError, match=r"test_square\.py exists already"):
        add_operator(read_project(project), "square")
    assert snapshot(project) == before
    (project / "tests/test_square.py").unlink()
    module = project / "torch-ext/my_relu/__init__.py"
    module.write_text(module.read_text() + "\n\ndef square(x):\n    return x\n")
    before = snapshot(project)
    with pytest.raises(UsageError, match="has the name square already"):
        add_operator(read_project(project), "square")
    assert snapshot(project) == before


def test_a_project_on_the_full_abi_is_refused(project):
    path = project / "build.toml"
    path.write_text(path.read_text().replace('stable-abi = "2.10"\n', ""))
    with pytest.raises(UsageError, match="stable ABI"):
        add_operator(read_project(project), "square")

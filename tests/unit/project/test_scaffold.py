# SPDX-License-Identifier: Apache-2.0
"""A new project is whole, says the user's words everywhere, and never touches what is there."""

import ast
import re
import signal
import subprocess
import sys
import tomllib

import pytest
from support.programs import check_style
from support.scaffolds import scaffold

from kernforge.errors import IntegrityError, UsageError
from kernforge.manifest.document import parse
from kernforge.manifest.sources import check_files
from kernforge.project.scaffold import fill, name_for, project_files


def _project(tmp_path, **options):
    dest = tmp_path / "project"
    paths = scaffold("my-relu", dest=dest, **options)
    return dest, {path.relative_to(dest).as_posix(): path.read_text() for path in paths}


@pytest.mark.parametrize(
    ("backends", "sections", "missing"),
    [
        (("cuda", "cpu"), {"my_relu_cpu", "my_relu_cuda"}, set()),
        (("cpu",), {"my_relu_cpu"}, {"my_relu.cu"}),
        (("cuda",), {"my_relu_cuda"}, {"my_relu_cpu.cpp"}),
    ],
)
def test_a_project_has_what_its_backends_need(tmp_path, backends, sections, missing):
    dest, files = _project(tmp_path, backends=backends)
    manifest = parse(files["build.toml"])
    assert set(manifest.general.backends) == set(backends)
    assert set(manifest.kernels) == sections
    assert manifest.notes == ()
    assert check_files(manifest, files) == []
    assert {"my_relu.cu", "my_relu_cpu.cpp"} - set(files) == missing
    assert sorted(files) == sorted(
        path.relative_to(dest).as_posix() for path in dest.rglob("*") if path.is_file()
    )


def test_every_placeholder_is_filled(tmp_path):
    _, files = _project(tmp_path)
    for path, text in files.items():
        assert set(re.findall(r"__[A-Z_]+__", path + text)) <= {"__CUDACC__"}, path
    assert tomllib.loads(files["build.toml"])["general"]["license"] == "Apache-2.0"
    assert "SPDX-License-Identifier: Apache-2.0\n" in files["my_relu_cpu.cpp"]
    assert "my-relu" in files["CARD.md"]
    module = ast.parse(files["torch-ext/my_relu/_my_relu.py"])
    assert "my_relu" in {n.name for n in module.body if isinstance(n, ast.FunctionDef)}


def test_the_minimal_project_has_five_files(tmp_path):
    _, files = _project(tmp_path, layout="minimal")
    assert sorted(files) == [
        "build.toml",
        "my_relu.cu",
        "tests/test_my_relu.py",
        "torch-ext/my_relu/__init__.py",
        "torch-ext/torch_binding.cpp",
    ]
    assert check_files(parse(files["build.toml"]), files) == []


@pytest.mark.parametrize("layout", ["full", "gradient", "minimal"])
def test_the_files_are_formatted_and_linted(tmp_path, layout):
    # The columns of a template depend on the length of the name: one as long as the placeholder.
    dest = tmp_path / "project"
    check_style(dest, scaffold("a-fifteen-chars", dest=dest, layout=layout))


def test_an_existing_directory_is_filled_and_keeps_its_files(tmp_path):
    dest = tmp_path / "My_Project"
    (dest / "tests").mkdir(parents=True)
    (dest / "README.md").write_text("mine")
    (dest / "tests" / "test_mine.py").write_text("mine")
    filled = fill(project_files(name_for(dest)), dest)
    assert filled.kept == (dest / "README.md",)
    assert (dest / "README.md").read_text() == "mine"
    assert all(path.is_file() for path in filled.written)
    assert parse((dest / "build.toml").read_text()).general.name == "my-project"
    with pytest.raises(UsageError, match="is a kernel project"):
        fill(project_files("my-project"), dest)
    linked, outside = tmp_path / "linked", tmp_path / "outside"
    linked.mkdir()
    outside.mkdir()
    (linked / "torch-ext").symlink_to(outside)
    with pytest.raises(IntegrityError, match="torch-ext is a symbolic link"):
        fill(project_files("linked"), linked)
    assert (list(outside.iterdir()), len(list(linked.iterdir()))) == ([], 1)


@pytest.mark.parametrize(
    ("directory", "name"),
    [("My_Dir", "my-dir"), ("relu", "relu"), ("a.b  c", "a-b-c"), ("-x1-", "x1")],
)
def test_the_name_that_a_directory_suggests(tmp_path, directory, name):
    assert name_for(tmp_path / directory) == name


NO_NAME, NO_FUNCTION = "is not a kernel name", "cannot be the name of a function"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *((name, NO_NAME) for name in ("", "a", "Relu", "9lives", "re_lu", "relu-", "-relu")),
        *((name, NO_NAME) for name in ("re lu", "kernels/my-kernel", "relu\n")),
        *((name, NO_FUNCTION) for name in ("class", "ops", "torch", "add-op-namespace-prefix")),
    ],
)
def test_unusable_names_are_refused(tmp_path, name, message):
    with pytest.raises(UsageError, match=message):
        scaffold(name, dest=tmp_path / "x")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    dest = tmp_path / "relu"
    dest.mkdir()
    (dest / "mine.cu").write_text("precious")
    with pytest.raises(UsageError, match=r"exists already and holds mine\.cu"):
        scaffold("relu", dest=dest)
    assert [path.name for path in dest.iterdir()] == ["mine.cu"]
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="exists already"):
        scaffold("relu", dest=file)
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="exists already"):
        scaffold("relu", dest=link)


def test_a_killed_run_leaves_no_half_project(tmp_path):
    dest = tmp_path / "relu"
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from kernforge.project import scaffold\n"
        "real, count = scaffold.write_new, 0\n"
        "def write_new(*args, **options):\n"
        "    global count\n"
        "    count += 1\n"
        "    if count == 5: os.kill(os.getpid(), signal.SIGKILL)\n"
        "    real(*args, **options)\n"
        "scaffold.write_new = write_new\n"
        f"scaffold.create(scaffold.project_files('relu'), Path({str(dest)!r}))\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=False)
    assert done.returncode == -signal.SIGKILL
    assert not dest.exists()
    scaffold("relu", dest=dest)
    assert (dest / "build.toml").is_file()

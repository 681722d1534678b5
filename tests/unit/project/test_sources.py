# SPDX-License-Identifier: Apache-2.0
"""Which files of a project a build sees."""

import pytest

from kernforge.project import api as project, units

MANIFEST = """
[general]
name = "my-op"
version = 1
edition = 5
license = "Apache-2.0"
backends = ["cpu"]
[torch]
src = ["torch-ext/binding.cpp"]
[kernel.c]
backend = "cpu"
depends = []
include = [".generated"]
src = ["dist/a.cpp", "b.cpp"]
"""
FILES = {
    "build.toml": MANIFEST,
    "torch-ext/binding.cpp": "",
    "torch-ext/my_op/__init__.py": "",
    "torch-ext/my_op/data.json": "{}",
    "dist/a.cpp": '#include "../tables/values.txt"\n',
    "b.cpp": '#include "sub/build/deep.h"\n',
    "sub/build/deep.h": "",
    "tables/values.txt": '#include "more.dat"\n',
    "tables/more.dat": "1, 2",
    "tables/unused.dat": "3",
    "build/torch-cpu/old.cpp": "",
    ".git/config.h": "",
    ".generated/x.h": "",
    "__pycache__/x.h": "",
}


def write(root, **more):
    for path, text in {**FILES, **more}.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text)
    return root


@pytest.fixture
def read(tmp_path):
    return project.read_project(write(tmp_path)).sources


def test_results_and_caches_are_read_only_when_named(read):
    assert {"dist/a.cpp", ".generated/x.h", "sub/build/deep.h"} <= set(read.texts)
    assert not {"build/torch-cpu/old.cpp", ".git/config.h", "__pycache__/x.h"} & set(read.digests)


def test_an_included_file_is_read_whatever_its_extension(read):
    assert {"tables/values.txt", "tables/more.dat"} <= set(read.texts)
    assert "tables/unused.dat" not in read.digests


def test_the_package_is_hashed_whole(read):
    assert "torch-ext/my_op/data.json" in read.digests
    assert [*read.default_headers] == ["torch-ext/registration.h"]


def test_a_project_that_names_a_bundled_header_gets_all(tmp_path):
    root = write(tmp_path, **{"a.h": '#define WHICH "kernforge/pdl.cuh"\n'})
    headers = project.read_project(root).sources.default_headers
    assert {"csrc/kernforge/pdl.cuh", "torch-ext/kernforge/binding.h"} <= headers.keys()
    for path, text in headers.items():
        assert units.bundled_path(path).read_text() == text


def test_a_virtual_environment_in_the_project_is_not_read(tmp_path):
    write(tmp_path)
    for place in ("venv", "tools/py312"):
        (tmp_path / place / "include").mkdir(parents=True)
        (tmp_path / place / "pyvenv.cfg").touch()
        (tmp_path / place / "include" / "torch.h").touch()
    assert not [path for path in project.read_project(tmp_path).files if "torch.h" in path]

# SPDX-License-Identifier: Apache-2.0
"""Calls that are refused before a compiler starts."""

from pathlib import Path

import pytest

import kernforge
from kernforge.errors import BuildError, UsageError
from kernforge.extension import request

pytest.importorskip("torch")

MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"


def test_paths_are_one_or_several():
    assert request.paths("inc") == ("inc",)
    assert request.paths(["a.cpp", Path("b.cu")]) == ("a.cpp", "b.cu")
    assert request.paths(None) == ()


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], "there are no sources"),
        (["a.cpp", "x.txt"], r"x\.txt is not a source: \.txt is not compiled"),
        (["kernel"], "a file without a suffix"),
        (["/nowhere/dir.with/dots.c++"], "there is no source"),
    ],
)
def test_files_that_nothing_compiles_are_refused(sources, words):
    with pytest.raises(UsageError, match=words):
        kernforge.load("toy", sources)


def test_a_projects_flags_are_its_own(tmp_path):
    with pytest.raises(UsageError, match=r"flags are in its build\.toml"):
        kernforge.load(tmp_path, extra_cflags=["-O3"])


@pytest.mark.parametrize("name", ["", ".", "a/b", "../up", "nul\0"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(UsageError, match="cannot be the name"):
        kernforge.load_inline(name, MODULE)


@pytest.mark.parametrize(
    ("name", "better"), [("my-kernel", "my_kernel"), ("1st", "_1st"), ("pkg.k", "pkg_k")]
)
def test_a_name_that_is_no_identifier_is_refused_where_sources_use_it(name, better):
    with pytest.raises(UsageError, match="not an identifier of C") as caught:
        kernforge.load_inline(name, MODULE)
    assert better in caught.value.hint


def test_a_function_that_differs_from_its_schema_is_refused():
    text = """void run(double n) {}
STABLE_TORCH_LIBRARY(a, m) { m.def("f(int n) -> ()"); }
STABLE_TORCH_LIBRARY_IMPL(a, CPU, m) { m.impl("f", TORCH_BOX(&run)); }
"""
    with pytest.raises(BuildError, match=r"^cpp_sources:1: error: .*\(cpp_sources:2\) says int n,"):
        kernforge.load_inline("differs", text, is_python_module=False, no_implicit_headers=True)


def test_programs_and_sycl_are_refused():
    with pytest.raises(UsageError, match="programs are not built"):
        kernforge.load("program", [], is_standalone=True)
    with pytest.raises(UsageError, match="SYCL"):
        kernforge.load_inline("sycl", "", sycl_sources="x")

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

import kernforge
from kernforge.errors import UsageError
from kernforge.extension import request

MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"


def test_paths_are_one_or_several():
    assert request.paths("inc") == ("inc",)
    assert request.paths(Path("a.cpp")) == ("a.cpp",)
    assert request.paths(["a.cpp", Path("b.cu")]) == ("a.cpp", "b.cu")
    assert request.paths(None) == ()


@pytest.mark.parametrize("name", ["a.cpp", "a.cc", "a.cu", "a.C", "dir.with/dots.c++"])
def test_sources_that_are_compiled(name):
    request.check_sources([name], ())


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], "there are no sources"),
        (["a.cpp", "x.txt"], r"x\.txt is not a source: \.txt is not compiled"),
        (["kernel.py"], r"\.py is not compiled"),
        (["kernel"], "a file without a suffix"),
        (["k.sycl"], "SYCL"),
    ],
)
def test_sources_that_are_not_compiled(sources, words):
    with pytest.raises(UsageError, match=words):
        request.check_sources(sources, ("-O3",))


def test_a_projects_flags_are_its_own(tmp_path):
    with pytest.raises(UsageError, match=r"flags are in its build\.toml"):
        kernforge.load(tmp_path, extra_cflags=["-O3"])


def test_a_flag_may_say_the_language():
    request.check_sources(["a.inl"], ("-x", "c++"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "nul\0"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(UsageError, match="cannot be the name"):
        request.check_name(name, [])


@pytest.mark.parametrize(
    ("name", "better"), [("my-kernel", "my_kernel"), ("1st", "_1st"), ("pkg.k", "pkg_k")]
)
def test_a_name_that_is_not_an_identifier_is_refused_where_the_sources_use_it(name, better):
    with pytest.raises(UsageError, match="not an identifier of C") as caught:
        request.check_name(name, [MODULE])
    assert better in caught.value.hint
    request.check_name(name, ["PyInit_mine()"])
    request.check_name(better, [MODULE])


def test_a_module_must_be_defined_somewhere():
    with pytest.raises(UsageError, match="no source defines the Python module toy") as caught:
        request.check_definition("toy", ["int x;", ""])
    assert "functions=[...]" in caught.value.hint
    for text in (MODULE, "NB_MODULE(toy, m) {}", "PyMODINIT_FUNC PyInit_toy()"):
        request.check_definition("toy", ["int x;", text])

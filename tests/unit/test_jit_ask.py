# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kernforge import jit_ask
from kernforge.errors import UsageError

MODULE = "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}"


def test_paths_are_one_or_several():
    assert jit_ask.paths("inc", "x") == ("inc",)
    assert jit_ask.paths(Path("a.cpp"), "x") == ("a.cpp",)
    assert jit_ask.paths(["a.cpp", Path("b.cu")], "x") == ("a.cpp", "b.cu")
    assert jit_ask.paths(None, "x") == ()


@pytest.mark.parametrize("given", [b"a.cpp", [b"a.cpp"], [None], [1]])
def test_what_is_no_path_is_named(given):
    with pytest.raises(UsageError, match=r"sources has .*, which is no path"):
        jit_ask.paths(given, "sources")


@pytest.mark.parametrize("name", ["a.cpp", "a.cc", "a.cu", "a.C", "dir.with/dots.c++"])
def test_sources_that_are_compiled(name):
    jit_ask.check_sources([name], ())


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ([], "there are no sources"),
        (["a.cpp", "x.txt"], r"x\.txt is no source: nothing compiles \.txt"),
        (["kernel.py"], r"nothing compiles \.py"),
        (["kernel"], "a file without a suffix"),
        (["k.sycl"], "SYCL"),
    ],
)
def test_sources_that_nothing_compiles(sources, words):
    with pytest.raises(UsageError, match=words):
        jit_ask.check_sources(sources, ("-O3",))


def test_a_projects_flags_are_its_own():
    jit_ask.refuse_with_project([None, None])
    with pytest.raises(UsageError, match=r"flags are in its build\.toml"):
        jit_ask.refuse_with_project([None, ["-O3"]])


def test_a_flag_may_say_the_language():
    jit_ask.check_sources(["a.inl"], ("-x", "c++"))


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "../up", "nul\0"])
def test_a_name_that_no_file_can_have_is_refused(name):
    with pytest.raises(UsageError, match="cannot be the name"):
        jit_ask.check_name(name, [])


@pytest.mark.parametrize(
    ("name", "better"), [("my-kernel", "my_kernel"), ("1st", "_1st"), ("pkg.k", "pkg_k")]
)
def test_a_name_that_is_no_word_is_refused_where_the_sources_use_it(name, better):
    with pytest.raises(UsageError, match="no word of C") as caught:
        jit_ask.check_name(name, [MODULE])
    assert better in caught.value.hint
    jit_ask.check_name(name, ["PyInit_mine()"])
    jit_ask.check_name(better, [MODULE])


def test_a_module_must_be_defined_somewhere():
    with pytest.raises(UsageError, match="no source defines the Python module toy") as caught:
        jit_ask.check_module("toy", ["int x;", ""])
    assert "functions=[...]" in caught.value.hint
    for text in (MODULE, "NB_MODULE(toy, m) {}", "PyMODINIT_FUNC PyInit_toy()"):
        jit_ask.check_module("toy", ["int x;", text])


def test_a_directory_that_is_gone_is_said(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(UsageError, match="current directory"):
        jit_ask.here()

# SPDX-License-Identifier: Apache-2.0
import os

import pytest

from kernforge.errors import UsageError
from kernforge.setuptools import pip

pytest.importorskip("pip")
# With the first import of pip, setuptools leaves distutils to the standard library for the rest of
# the process, in which other tests import setuptools.
hack = pytest.importorskip("_distutils_hack")
vars(hack.DISTUTILS_FINDER).pop("spec_for_distutils", None)


def test_our_options_are_taken_and_pips_stay():
    chosen, rest = pip.take_choices(
        ["install", "--torch", "2.11", "--no-deps", ".", "--cuda=cpu", "--python", "3.11"]
    )
    assert chosen == {"torch": "2.11", "cuda": "cpu", "python": "3.11"}
    assert rest == ("install", "--no-deps", ".")
    with pytest.raises(UsageError, match="--torch has no value"):
        pip.take_choices(["install", "--torch"])


def test_pips_own_parser_says_what_is_an_option():
    words = ["install", "-t", "out", "-e", "a", ".", "--index-url", "out", "b[x]", "--editable=c"]
    found = pip.read_request(words, os.environ)
    assert found.words == (".", "b[x]")
    assert found.editables == ("a", "c")
    assert found.options == ("-t", "out", "--index-url", "out")


@pytest.mark.parametrize(
    ("line", "options", "words", "editables"),
    [
        ("wheel -w dist dist", "-w dist", "dist", ""),
        ("wheel . -w .", "-w .", ".", ""),
        ("install . --target .", "--target .", ".", ""),
        ("install --target=. . .", "--target=.", ". .", ""),
        ("install -e . --target .", "--target .", "", "."),
        ("install -e. -t . b", "-t .", "b", "."),
        ("install -U -e a --editable=a -- a", "-U --", "a", "a a"),
    ],
)
def test_a_word_that_is_also_a_value_stays_a_value(line, options, words, editables):
    found = pip.read_request(line.split(), os.environ)
    assert (found.options, found.words) == (tuple(options.split()), tuple(words.split()))
    assert found.editables == tuple(editables.split())


def test_what_pip_does_not_know_is_pips_error():
    with pytest.raises(UsageError, match="no such option: --colour"):
        pip.read_request(["install", "--colour", "."], os.environ)


def test_a_bare_word_is_a_name_also_where_a_directory_has_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy-1.0.tar.gz").touch()
    assert pip.local_path("toy") is None
    for word in ("./toy", "toy/", "./toy[extra]", f"{tmp_path}/toy"):
        assert pip.local_path(word) == tmp_path / "toy"
    assert pip.local_path("toy-1.0.tar.gz") == tmp_path / "toy-1.0.tar.gz"
    assert pip.local_path("./toy-1.0.whl") is None


FAILED = """Processing ./my_extension
  copying much
  running build_ext
  fetching parts of torch.whl
    4 of 6 actions ended, 1 running, 0.4 GB: my_op.cpp (10 s)
  my_op.cpp:7: error: expected ';'
    7 | int a
  error: my_op.cpp failed
  look at the message above
  error: subprocess-exited-with-error

  x Building wheel for my_ops (pyproject.toml) did not run successfully.
ERROR: Failed to build one or more wheels
"""


def test_of_a_failed_build_only_what_was_not_shown_is_said_again():
    shown = ["fetching parts of torch.whl", FAILED.splitlines()[4]]
    assert pip.failure_text(FAILED, shown).splitlines() == [
        "my_op.cpp:7: error: expected ';'",
        "  7 | int a",
        "error: my_op.cpp failed",
        "look at the message above",
    ]


def test_an_error_of_setup_py_itself_is_shown_whole():
    text = pip.failure_text("Processing .\n  NameError: name 'x' is not defined\n", [])
    assert text.endswith("NameError: name 'x' is not defined")
    assert pip.failure_text("only this", ["only this"]) == "only this"

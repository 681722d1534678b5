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


def test_a_word_that_is_also_a_value_stays_a_value():
    found = pip.read_request(["wheel", "-w", "dist", "dist"], os.environ)
    assert (found.options, found.words) == (("-w", "dist"), ("dist",))


def test_what_pip_does_not_know_is_pips_error():
    with pytest.raises(UsageError, match="no such option: --colour"):
        pip.read_request(["install", "--colour", "."], os.environ)

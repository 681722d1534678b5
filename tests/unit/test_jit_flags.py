# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge import jit_flags, jit_plan


def test_flags_with_several_words_are_split_as_a_shell_does():
    assert jit_flags.words(["-O3 -g", '-DX="a b"']) == ("-O3", "-g", "-DX=a b")
    assert jit_flags.words(None) == ()


def test_search_paths_are_told_from_flags():
    found = jit_flags.parted(("-Iinc", "-O3", "-I", "/x/../y", "-include", "first.h"), "/w")
    assert found.search == ("/w/inc", "/y")
    assert found.first == ("/w/first.h",)
    assert found.rest == ("-O3",)


def test_a_linkers_paths_become_absolute():
    found = jit_flags.linker(("-Llib", "-L", "../x", "-lm", "a.o"), "/w")
    assert found == ("-L/w/lib", "-L/x", "-lm", "/w/a.o")


@pytest.mark.parametrize(("path", "below"), [("/usr/include", True), ("/usrx", False)])
def test_a_directory_below_another_is_recognised(path, below):
    assert jit_flags.is_below(path, ["/usr"]) is below


@pytest.mark.parametrize(
    ("text", "header"),
    [
        ("#include <torch/extension.h>\nint x;", "torch/extension.h"),
        ("// why\n#include <vector>\n#include <torch/extension.h>", "torch/extension.h"),
        ("#define A\n#include <torch/extension.h>", ""),
        ('#include "mine.h"\n#include <torch/extension.h>', ""),
        ("#include <vector>", ""),
    ],
)
def test_a_unit_starts_from_a_compiled_header_only_if_nothing_of_its_own_comes_first(text, header):
    assert jit_plan.first_header(text) == header

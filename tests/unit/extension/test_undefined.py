# SPDX-License-Identifier: Apache-2.0
import pytest

from kernforge.binary.elf import Elf, Symbol
from kernforge.extension import loading

CPP = """#include <torch/extension.h>
void launch(float* x, int n);
void run() { launch(nullptr, 3); }
"""
CU = """extern "C" {
void launch(float* x, int n) {
}
}
"""


def library(undefined=(), exported=(), needed=()):
    return Elf(
        machine="x86_64",
        soname="",
        needed=needed,
        rpath=(),
        undefined=tuple(Symbol(name=name) for name in undefined),
        exported=tuple(Symbol(name=name) for name in exported),
    )


def error(elf, texts, **more):
    return loading.undefined_error("ops", elf, texts, "the sources", **more)


@pytest.mark.parametrize(
    ("wanted", "exported"), [("_Z6launchPfi", "launch"), ("launch", "_Z6launchPfi")]
)
def test_extern_c_on_one_side_is_named_with_both_files(wanted, exported):
    found = error(library([wanted], [exported]), {"b.cpp": CPP, "k.cu": CU})
    assert 'launch has extern "C" on one side only (b.cpp, k.cu)' in found.message
    assert 'write extern "C" before launch' in found.hint


def test_library_that_cannot_be_read_may_define_the_function():
    wanted = ["_Z6launchPfi"]
    assert "no source defines it" in error(library(wanted), {"b.cpp": CPP}).message
    assert error(library(wanted, needed=("libfar4.so.3",)), {"b.cpp": CPP}) is None


def test_the_dynamic_loaders_symbol_may_be_a_name_of_c():
    assert error(library(["launch"]), {"b.cpp": CPP}) is None
    assert error(library(["launch"]), {"b.cpp": CPP}, missing="launch").message.startswith(
        "ops cannot be imported: launch is named in b.cpp:2, and no source defines it"
    )

# SPDX-License-Identifier: Apache-2.0
from kernforge.binary.elf import Elf, Symbol
from kernforge.setuptools import link_errors

CPP = """#include <torch/extension.h>
void launch(float* x, int n);
void run() { launch(nullptr, 3); }
"""
CU = """extern "C" {
void launch(float* x, int n) {
}
}
"""


def library(undefined=(), exported=()):
    return Elf(
        machine="x86_64",
        soname="",
        needed=(),
        rpath=(),
        undefined=tuple(Symbol(name=name) for name in undefined),
        exported=tuple(Symbol(name=name) for name in exported),
    )


def test_defined_as_c_and_declared_as_cpp():
    found = link_errors.undefined(
        "ops", library(["_Z6launchPfi"], ["launch"]), {"b.cpp": CPP, "k.cu": CU}
    )
    assert 'launch has extern "C" on one side only (b.cpp, k.cu)' in found.message
    assert 'write extern "C" before launch' in found.hint


def test_defined_as_cpp_and_declared_as_c():
    found = link_errors.undefined(
        "ops", library(["launch"], ["_Z6launchPfi"]), {"b.cpp": CPP, "k.cu": CU}
    )
    assert 'launch has extern "C" on one side only' in found.message


def test_a_function_of_the_sources_that_nothing_defines():
    found = link_errors.undefined("ops", library(["_Z6launchPfi"]), {"b.cpp": CPP})
    assert "launch(float*, int) is named in b.cpp:2, and no source defines it" in found.message


def test_what_torch_and_python_provide_is_not_missing():
    wanted = [
        "_ZN2at11TensorMaker11make_tensorEv",
        "PyLong_FromLong",
        "_ZTVN5torch8autograd4NodeE",
        "_ZN3c105ErrorC1ENS_14SourceLocationESs",
        "cudaLaunchKernel",
    ]
    assert link_errors.undefined("ops", library(wanted, ["PyInit_ops"]), {"b.cpp": CPP}) is None

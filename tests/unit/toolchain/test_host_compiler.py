# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path

import pytest

from kernforge.errors import ToolchainError
from kernforge.system import process
from kernforge.system.process import Completed
from kernforge.toolchain import host_compiler


def answers(table):
    def runner(command):
        for start, text in table.items():
            if command.argv[: len(start)] == start:
                return Completed(returncode=0, stdout=text, stderr="")
        raise FileNotFoundError(command.argv[0])

    return runner


@pytest.mark.parametrize("value", ["", " g++ ", "ccache g++", "/usr/bin/sccache 'g++'"])
def test_the_compiler_here_is_found_and_named_without_its_launcher(value):
    found = host_compiler.find({**os.environ, "CXX": value}, process.run)
    assert Path(found.path).is_absolute()
    assert found.target.split("-")[0] in {"x86_64", "aarch64"}


@pytest.mark.parametrize(
    ("answer", "there"), [("/usr/lib/gcc/libstdc++.a", True), ("libstdc++.a", False)]
)
def test_a_distribution_without_a_static_libstdcxx_is_recognised(answer, there):
    table = {
        ("g++", "--version"): "g++ 14",
        ("g++", "-dumpfullversion"): "14.2.1",
        ("g++", "-dumpmachine"): "x86_64-redhat-linux",
        ("g++", "-print-file-name=libstdc++.a"): answer,
        ("/bin/sh",): "/usr/bin/g++",
    }
    assert host_compiler.find({}, answers(table)).static_libstdcxx is there


def test_no_compiler_says_how_to_get_one():
    with pytest.raises(ToolchainError, match="no C\\+\\+ compiler is installed") as caught:
        host_compiler.find({}, answers({}))
    assert "apt install g++" in caught.value.hint


def test_a_compiler_named_in_cxx_must_be_there():
    with pytest.raises(ToolchainError, match="CXX is 'g\\+\\+-99', and there is no such"):
        host_compiler.find({"CXX": "g++-99"}, answers({}))


@pytest.mark.parametrize(
    ("identity", "version", "said"),
    [
        ("g++ 8.5", "8.5.0", "torch's headers need"),
        ("clang version 18", "4.2.1", "builds with GCC"),
        ("echo (GNU coreutils) 9.1", "-dumpfullversion", "builds with GCC"),
    ],
)
def test_a_compiler_that_cannot_serve_is_refused(identity, version, said):
    table = {
        ("g++", "--version"): identity,
        ("g++", "-dumpfullversion"): version,
        ("g++", "-dumpmachine"): "x86_64-linux-gnu",
        ("/bin/sh",): "/usr/bin/g++",
    }
    with pytest.raises(ToolchainError, match=said):
        host_compiler.find({}, answers(table))


@pytest.mark.parametrize("value", ["'g++", "ccache", "ccache sccache", "g++ -m64"])
def test_a_value_of_cxx_that_is_no_compiler_is_named(value):
    with pytest.raises(ToolchainError) as caught:
        host_compiler.find({**os.environ, "CXX": value}, process.run)
    assert f"CXX is {value!r}" in caught.value.message
    assert "CXX=" in caught.value.hint
    assert "build.toml" not in caught.value.hint

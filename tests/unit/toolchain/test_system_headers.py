# SPDX-License-Identifier: Apache-2.0
"""Headers of the distribution are in the key of the units that may read them."""

import hashlib

import pytest

from kernforge.system.process import run
from kernforge.toolchain import system_headers
from kernforge.toolchain.system_headers import SystemHeaders

FILES = {
    "usr/include/c++/12/vector": "",
    "usr/include/c++/12/own.h": "",
    "usr/include/zlib.h": "",
    "usr/include/Eigen/Core": "",
    "opt/eigen/Eigen/Dense": "",
}


@pytest.fixture
def machine(tmp_path):
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    searched = (str(tmp_path / "usr/include/c++/12"), str(tmp_path / "usr/include"))

    def read(*names, first=()):
        found = SystemHeaders(lambda _cpu: searched).read_by(names, first=first)
        for path, sha256 in found.items():
            with open(path, "rb") as stream:  # noqa: PTH123 - the path is a text
                assert hashlib.sha256(stream.read()).hexdigest() == sha256
        return {path.removeprefix(f"{tmp_path}/") for path in found}

    return read


def test_a_header_that_a_unit_names_counts(machine):
    assert machine("zlib.h", "Eigen/Core") == {"usr/include/zlib.h", "usr/include/Eigen/Core"}


def test_the_compilers_own_and_what_is_nowhere_do_not_count(machine):
    assert machine("vector", "own.h", "windows.h", "torch/all.h", "stdint.h") == set()


def test_a_directory_of_a_flag_is_searched_first(machine, tmp_path):
    assert machine("Eigen/Dense", first=(str(tmp_path / "opt/eigen"),)) == {"opt/eigen/Eigen/Dense"}


def test_a_compiler_says_where_it_looks():
    assert "/usr/include" in system_headers.directories("g++", run)

# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kernforge.binary import elf
from kernforge.binary.elf import Symbol
from kernforge.errors import CheckError

SMALL = (Path(__file__).parents[2] / "data" / "elf" / "small.so").read_bytes()


def test_the_header_and_the_dynamic_section_are_read():
    found = elf.parse(SMALL)
    assert found.machine == "x86_64"
    assert found.soname == "libsmall.so"
    assert found.needed == ("libstdc++.so.6", "libc.so.6")
    assert found.rpath == ("/opt/a", "/opt/b")
    assert ".dynsym" in found.sections


def test_undefined_symbols_come_with_version_and_owner():
    assert set(elf.parse(SMALL).undefined) == {
        Symbol(
            name="malloc",
            version="GLIBC_2.2.5",
            library="libc.so.6",
            kind="function",
        ),
        Symbol(
            name="_ZdlPvm",
            version="CXXABI_1.3.9",
            library="libstdc++.so.6",
            kind="function",
        ),
        Symbol(name="torch_like_function"),
        Symbol(name="may_be_missing", weak=True),
    }


def test_exported_symbols_tell_kind_and_uniqueness():
    found = {symbol.name: symbol for symbol in elf.parse(SMALL).exported}
    assert found["offered"].kind == "object"
    assert found["entry"].kind == "function"
    assert [name for name, symbol in found.items() if symbol.unique] == ["_ZZ6mergedvE5value"]


def test_a_section_is_given_as_bytes_and_a_missing_one_as_none_of_them():
    assert b"libsmall.so\0" in elf.section(SMALL, ".dynstr")
    assert elf.section(SMALL, ".nv_fatbin") == b""


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", SMALL[:100], SMALL[:4000]])
def test_damaged_files_are_refused(data):
    with pytest.raises(CheckError, match="not a readable ELF file"):
        elf.parse(data)

# SPDX-License-Identifier: Apache-2.0
import struct
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


@pytest.mark.parametrize("data", [b"", b"#!/bin/sh\n", SMALL[:100], SMALL[:4000]])
def test_damaged_files_are_refused(data):
    with pytest.raises(CheckError, match="not a readable ELF file"):
        elf.parse(data)


def _section(data, kind):
    """Offset of the header of the first section of a kind, and its fields."""
    table, size, count = (*struct.unpack_from("<Q", data, 40), *struct.unpack_from("<HH", data, 58))
    for start in range(table, table + size * count, size):
        if struct.unpack_from("<I", data, start + 4)[0] == kind:
            return start
    raise AssertionError(kind)


DYNSYM, VERNEED = 11, 0x6FFFFFFE
LIES = {
    "versions": (VERNEED, 44, "<I", 9_900_000, "9,900,000 versions"),
    "symbols": (DYNSYM, 32, "<Q", 9_900_000 * 24, "leads out of the file"),
    "no size of a symbol": (DYNSYM, 56, "<Q", 0, "records of 0 bytes"),
    "elsewhere": (DYNSYM, 24, "<Q", 1 << 63, "leads out of the file"),
}


@pytest.mark.parametrize(("kind", "offset", "form", "value", "reason"), LIES.values(), ids=LIES)
def test_a_header_cannot_name_more_than_the_file_holds(kind, offset, form, value, reason):
    data = bytearray(SMALL)
    struct.pack_into(form, data, _section(data, kind) + offset, value)
    with pytest.raises(CheckError, match=reason):
        elf.parse(bytes(data))


def test_the_number_of_sections_is_bounded():
    data = bytearray(SMALL)
    struct.pack_into("<H", data, 60, 0)  # then the first section tells it
    struct.pack_into("<Q", data, struct.unpack_from("<Q", data, 40)[0] + 32, 9_900_000)
    with pytest.raises(CheckError, match="9,900,000 sections"):
        elf.parse(bytes(data))

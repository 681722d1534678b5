# SPDX-License-Identifier: Apache-2.0
"""Mach-O libraries out of wheels for macOS."""

import struct

import pytest
from support import macho as libraries

from kernforge.binary import macho
from kernforge.errors import CheckError

ARM, INTEL = 0x0100000C, 0x01000007


def test_a_library_of_torch_says_what_it_loads():
    (found,) = macho.parse(libraries.read("libtorchaudio.abi3.so"))
    assert (found.cpu, found.kind, found.signed) == ("aarch64", "bundle", True)
    assert found.macos == (11, 0)
    assert found.loads[:3] == (
        "@rpath/libc10.dylib",
        "@rpath/libtorch.dylib",
        "@rpath/libtorch_cpu.dylib",
    )
    assert found.loads[-1] == "/usr/lib/libSystem.B.dylib"
    assert [path.rpartition("/")[2] for path in found.rpaths] == ["lib"]
    owners = {symbol.name: symbol.library for symbol in found.undefined}
    assert owners["aoti_torch_aten_subtract_Tensor"] == "@rpath/libtorch_cpu.dylib"
    assert owners["strlen"] == "/usr/lib/libSystem.B.dylib"


def test_names_of_python_belong_to_the_process():
    (found,) = macho.parse(libraries.read("markupsafe.so"))
    flat = {symbol.name for symbol in found.undefined if not symbol.library}
    assert flat == {"PyModuleDef_Init", "PyUnicode_New", "_PyUnicode_Ready"}


def test_a_file_for_several_cpus_is_read_for_each():
    data = libraries.read("markupsafe.so")
    intel = bytearray(data)
    struct.pack_into("<I", intel, 4, INTEL)
    both = libraries.universal((INTEL, bytes(intel)), (ARM, data))
    assert macho.is_macho(both)
    assert [each.cpu for each in macho.parse(both)] == ["x86_64", "aarch64"]
    assert macho.parse(both)[1] == macho.parse(data)[0]


def test_the_oldest_macos_is_in_either_of_two_commands():
    data = libraries.read("markupsafe.so")
    assert macho.parse(libraries.needing(data, 15, 4))[0].macos == (15, 4)
    start = libraries.command(data, libraries.BUILD_VERSION)
    old = bytearray(data)
    struct.pack_into("<I", old, start, 0x24)  # LC_VERSION_MIN_MACOSX, before 2018
    struct.pack_into("<I", old, start + 8, 10 << 16 | 13 << 8)
    assert macho.parse(bytes(old))[0].macos == (10, 13)
    assert macho.parse(libraries.without(data, libraries.BUILD_VERSION))[0].macos is None


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:20],
        lambda data: data[:100],
        lambda data: b"\x7fELF" + data[4:],
        lambda data: data[: len(data) // 2],
        lambda data: data[:16] + b"\xff\xff\xff\x7f" + data[20:],
        lambda data: libraries.universal((ARM, data))[:5000],
    ],
)
def test_a_file_that_is_not_whole_is_refused(change):
    with pytest.raises(CheckError, match="not a readable Mach-O file"):
        macho.parse(change(libraries.read("markupsafe.so")))

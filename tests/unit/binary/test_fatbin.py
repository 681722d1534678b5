# SPDX-License-Identifier: Apache-2.0
import struct
from pathlib import Path

import pytest

from kernforge.binary import cubin, fatbin
from kernforge.errors import CheckError

NVCC = (Path(__file__).parents[2] / "data" / "elf" / "nvcc.fatbin").read_bytes()
PTX, CUBIN, LTO = 1, 2, 8
ZSTD = b"\x28\xb5\x2f\xfd"
SPECIFIC, FAMILY = 1 << 20, 1 << 21


def wrapped(section: bytes, name: bytes = b".nv_fatbin") -> bytes:
    """A 64-bit ELF file with one section and the table of names."""
    names = b"\0" + name + b"\0.shstrtab\0"
    table = 64 + len(section) + len(names)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH",
        *(b"\x7fELF\2\1\1".ljust(16, b"\0"), 3, 62, 1, 0, 0, table, 0, 64, 0, 0, 64, 3, 2),
    )
    entry = struct.Struct("<IIQQQQIIQQ")
    return b"".join(
        [
            header,
            section,
            names,
            entry.pack(*[0] * 10),
            entry.pack(1, 1, 0, 0, 64, len(section), 0, 0, 8, 0),
            entry.pack(2 + len(name), 3, 0, 0, 64 + len(section), len(names), 0, 0, 1, 0),
        ]
    )


def entry(kind: int, arch: int, flags: int = 0, payload: bytes = b"\xff" * 24) -> bytes:
    header = struct.pack("<HHIQ12xI8xQ16x", kind, 0x101, 64, len(payload), arch, flags)
    return header + payload


def region(*entries: bytes) -> bytes:
    payload = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(payload)) + payload


def test_a_fat_binary_of_nvcc():
    found = fatbin.architectures(wrapped(NVCC))
    assert found.cubins == ("7.5", "9.0", "9.0a", "10.0f", "12.1")
    assert found.ptx == ("9.0a", "12.1")


@pytest.mark.parametrize(
    ("section", "cubins", "ptx"),
    [
        pytest.param(b"", (), (), id="empty"),
        pytest.param(region(), (), (), id="empty region"),
        pytest.param(region(entry(CUBIN, 80)), ("8.0",), (), id="cubin"),
        pytest.param(region(entry(PTX, 121)), (), ("12.1",), id="ptx"),
        pytest.param(region(entry(CUBIN, 90, SPECIFIC)), ("9.0a",), (), id="a"),
        pytest.param(region(entry(CUBIN, 103, FAMILY | 0x8011)), ("10.3f",), (), id="f"),
        pytest.param(region(entry(LTO, 90)), (), (), id="other kinds are no machine code"),
        pytest.param(
            region(entry(CUBIN, 120)) + bytes(8) + region(entry(CUBIN, 75), entry(CUBIN, 120)),
            ("7.5", "12.0"),
            (),
            id="several regions, padding between",
        ),
    ],
)
def test_entries_name_their_architecture(section, cubins, ptx):
    found = fatbin.architectures(wrapped(section))
    assert (found.cubins, found.ptx) == (cubins, ptx)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(NVCC[:1000], id="cut short"),
        pytest.param(b"\x51" + region(entry(CUBIN, 80))[1:], id="another magic"),
        pytest.param(region(bytes(64)), id="entry without header size"),
        pytest.param(region(b"\x02\x00"), id="entry cut short"),
    ],
)
def test_unknown_formats_are_refused_and_not_guessed(section):
    with pytest.raises(CheckError, match="unknown format"):
        fatbin.architectures(wrapped(section))


@pytest.mark.parametrize("code", [b"", ZSTD + bytes(60), b"\x7fELF" + bytes(60)])
def test_machine_code_that_cannot_be_read_is_refused(code):
    with pytest.raises(CheckError, match=r"compressed|unknown format"):
        cubin.uses(code, 9)


CODE = b"\x7fELF" + b"\xff" * 20


def test_one_piece_of_machine_code_is_taken_out_and_replaced():
    section = region(entry(CUBIN, 90, payload=CODE))
    assert fatbin.one_cubin(section + bytes(8)) == CODE
    longer = CODE + b"\x01" * 9
    found = fatbin.with_cubin(section, longer)
    assert found == region(entry(CUBIN, 90, payload=longer + bytes(7)))
    assert fatbin.architectures(wrapped(found)).cubins == ("9.0",)


@pytest.mark.parametrize(
    "section",
    [
        pytest.param(b"", id="empty"),
        pytest.param(region(entry(PTX, 90, payload=CODE)), id="no machine code"),
        pytest.param(region(entry(CUBIN, 90)), id="compressed"),
        pytest.param(region(*[entry(CUBIN, 90, payload=CODE)] * 2), id="two"),
        pytest.param(region(entry(CUBIN, 90, payload=CODE)) * 2, id="two regions"),
        pytest.param(NVCC[:40], id="cut short"),
    ],
)
def test_any_other_fat_binary_has_no_one_piece(section):
    assert fatbin.one_cubin(section) is None

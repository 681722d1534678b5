# SPDX-License-Identifier: Apache-2.0
"""What a Mach-O library asks of the Mac that loads it.

Layout: ``mach-o/loader.h``, ``mach-o/nlist.h`` and ``mach-o/fat.h`` of Apple's cctools. Only 64-bit
little-endian files, which all Macs since 2019 have.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from kernforge import budgets, documents
from kernforge.binary.elf import Symbol
from kernforge.errors import CheckError

_FAT, _FAT_64 = 0xCAFEBABE, 0xCAFEBABF
_MAGIC = 0xFEEDFACF
_CPUS = {0x0100000C: "aarch64", 0x01000007: "x86_64"}
_KINDS = {6: "dylib", 8: "bundle"}
_HEADER = struct.Struct("<8I")
_COMMAND = struct.Struct("<2I")
_SYMTAB = struct.Struct("<4I")
_NLIST = struct.Struct("<IBBHQ")
_SLICE = struct.Struct(">5I")
_SLICE_64 = struct.Struct(">2I2Q2I")
_TWO_LEVEL = 0x80  # MH_TWOLEVEL: an undefined symbol names the library that has it
_LC_SYMTAB, _LC_RPATH, _LC_CODE_SIGNATURE = 0x2, 0x8000001C, 0x1D
_LC_BUILD_VERSION, _LC_VERSION_MIN = 0x32, 0x24
_LC_LOADS = {0xC, 0x20, 0x80000018, 0x8000001F, 0x80000023}
_MACOS = 1  # PLATFORM_MACOS
_N_STAB, _N_TYPE, _N_EXT, _N_WEAK_REF = 0xE0, 0x0E, 0x01, 0x40
_FLAT = {0xFE, 0xFF}  # DYNAMIC_LOOKUP_ORDINAL, EXECUTABLE_ORDINAL
_MOST_SLICES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class MachO:
    """The dynamic part of a library for one CPU; tuples keep the order of the file.

    Attributes:
        cpu: ``aarch64``, ``x86_64``, or the number of another CPU.
        kind: ``dylib``, ``bundle``, or the number of another type of file.
        macos: major and minor of the oldest macOS that it loads on; None if it does not say.
        loads: install names of the libraries that are loaded with it.
        rpaths: directories that ``@rpath`` stands for.
        undefined: symbols that other libraries define, without the leading underscore of C;
            ``library`` is the install name, or empty if any library of the process may define it.
        signed: whether it has a code signature.
    """

    cpu: str
    kind: str
    macos: tuple[int, int] | None
    loads: tuple[str, ...]
    rpaths: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    signed: bool


def is_macho(data: bytes) -> bool:
    """Whether the bytes begin as a Mach-O file, for one CPU or for several."""
    start = data[:4]
    return start == _MAGIC.to_bytes(4, "little") or _fat_magic(data) is not None


def parse(data: bytes) -> tuple[MachO, ...]:
    """Parse a Mach-O file: one value for each CPU that it has code for.

    Raises:
        CheckError: the bytes are not a 64-bit Mach-O file, or the file is damaged.
    """
    with documents.foreign_parser(damaged):
        return tuple(_parse(memoryview(data)[start:end]) for start, end in _slices(data))


def damaged(reason: str) -> CheckError:
    """The error for a file that is not Mach-O, or not a whole one."""
    return CheckError(
        f"the file is not a readable Mach-O file: {reason}",
        hint="it is truncated or for another system: build it again",
    )


def _fat_magic(data: bytes) -> int | None:
    magic = int.from_bytes(data[:4], "big")
    return magic if magic in {_FAT, _FAT_64} else None


def _slices(data: bytes) -> list[tuple[int, int]]:
    """Begin and end of the file of each CPU."""
    magic = _fat_magic(data)
    if magic is None:
        return [(0, len(data))]
    count = int.from_bytes(data[4:8], "big")
    if not 0 < count <= _MOST_SLICES:
        raise damaged(f"it names {count:,} CPUs")
    record = _SLICE if magic == _FAT else _SLICE_64
    found = []
    for number in range(count):
        _cpu, _subtype, offset, size, *_ = record.unpack_from(data, 8 + number * record.size)
        if offset + size > len(data):
            raise damaged("the code of a CPU leads out of the file")
        found.append((offset, offset + size))
    return found


def _parse(data: memoryview) -> MachO:
    magic, cpu, _subtype, kind, count, size, flags, _ = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise damaged("it does not begin as a 64-bit one")
    commands = list(_commands(data, count, size))
    loads = tuple(_text(body, 8) for command, body in commands if command in _LC_LOADS)
    undefined = tuple(
        symbol
        for command, body in commands
        if command == _LC_SYMTAB
        for symbol in _undefined(data, body, loads, two_level=bool(flags & _TWO_LEVEL))
    )
    return MachO(
        cpu=_CPUS.get(cpu, hex(cpu)),
        kind=_KINDS.get(kind, str(kind)),
        macos=_macos(commands),
        loads=loads,
        rpaths=tuple(_text(body, 8) for command, body in commands if command == _LC_RPATH),
        undefined=undefined,
        signed=any(command == _LC_CODE_SIGNATURE for command, _ in commands),
    )


def _commands(data: memoryview, count: int, size: int) -> Iterator[tuple[int, memoryview]]:
    """Number and whole bytes of each load command."""
    position, end = _HEADER.size, _HEADER.size + size
    if end > len(data) or count > size // _COMMAND.size:
        raise damaged("its load commands lead out of the file")
    for _ in range(count):
        command, length = _COMMAND.unpack_from(data, position)
        if length < _COMMAND.size or position + length > end:
            raise damaged("a load command leads out of the others")
        yield command, data[position : position + length]
        position += length


def _text(body: memoryview, field: int) -> str:
    """A text in a load command, of which the field has the offset."""
    (offset,) = struct.unpack_from("<I", body, field)
    if offset >= len(body):
        raise damaged("a name leads out of its load command")
    return bytes(body[offset:]).split(b"\0", 1)[0].decode(errors="replace")


def _macos(commands: list[tuple[int, memoryview]]) -> tuple[int, int] | None:
    """The oldest macOS, packed as ``xxxx.yy.zz`` in the bytes of a number."""
    for command, body in commands:
        if command == _LC_BUILD_VERSION:
            platform, version = struct.unpack_from("<2I", body, 8)
            if platform != _MACOS:
                continue
        elif command == _LC_VERSION_MIN:
            (version,) = struct.unpack_from("<I", body, 8)
        else:
            continue
        return version >> 16, version >> 8 & 0xFF
    return None


def _undefined(
    data: memoryview, body: memoryview, loads: tuple[str, ...], *, two_level: bool
) -> Iterator[Symbol]:
    """The symbols that other libraries must define."""
    offset, count, names, size = _SYMTAB.unpack_from(body, 8)
    limits = budgets.current()
    if count > limits.records or offset + count * _NLIST.size > len(data):
        raise damaged(f"it names {count:,} symbols in {len(data):,} bytes")
    if names + size > len(data):
        raise damaged("its names lead out of the file")
    texts = bytes(data[names : names + size])
    left = max(limits.slack, 8 * len(data))
    for entry in range(count):
        name, kind, _section, description, value = _NLIST.unpack_from(
            data, offset + entry * _NLIST.size
        )
        # A value makes an undefined symbol a common one, which this file defines.
        if kind & _N_STAB or kind & _N_TYPE or not kind & _N_EXT or value:
            continue
        end = texts.find(b"\0", name)
        if name >= size or end < 0 or (left := left - (end - name)) < 0:
            raise damaged("the name of a symbol leads out of the names, or names overlap")
        ordinal = description >> 8
        known = two_level and ordinal not in _FLAT and 0 < ordinal <= len(loads)
        yield Symbol(
            name=texts[name:end].decode(errors="replace").removeprefix("_"),
            library=loads[ordinal - 1] if known else "",
            weak=bool(description & _N_WEAK_REF),
        )

# SPDX-License-Identifier: Apache-2.0
"""Kernels and variables of a cubin (machine code for a GPU, an ELF file), and equality of two cubins.

The host registers kernels and variables by name; kernels are the functions of the symbol table with
STO_CUDA_ENTRY in ``st_other``. NVIDIA does not document the value, except by the output of the CUDA
binary utilities; it was found in files of nvcc 13.0.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator

from kernforge import documents
from kernforge.binary import elf

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_RELOCATION = struct.Struct("<QQq")  # Elf64_Rela: offset, symbol and type, addend
_OBJECT, _FUNCTION = 1, 2
_ENTRY = 0x10
# Has the name of the compiler's build.
_TOOL = ".note.nv.tkinfo"
# Sections that depend on the order of functions, which does not change their code.
_ORDERED = {_TOOL, ".symtab", ".strtab", ".shstrtab", ".nv.info", ".debug_frame"}
_RELOCATIONS = ".rela"
# Names of a unit's internal symbols have a hash of the path that the compiler was given.
_UNIT = re.compile(rb"(_GLOBAL__N__|_INTERNAL_)([0-9a-f]{8})(?=_)")
# Mangled name of a unit's unnamed namespaces, after its length.
_UNNAMED = re.compile(rb"(\d{1,9})(_GLOBAL__N__[0-9a-f]{8}_\w+)")
# NVRTC keeps constants of the source that no code uses; nvcc does not.
_OF_CONSTANTS = {".nv.global.init", ".nv.constant4", ".rela.nv.constant4"}
_INTERNAL = re.compile(r"_INTERNAL_[0-9a-f]{8}_(\w+?)_[0-9a-f]{8}")
_ATTRIBUTES = ".nv.info."
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED, _PARAMETERS = 4, 0x0A
_OF_FRAMES = ".rela.debug_frame"
# Constants of the compiler and of its mathematical functions.
_OWN = ("$", ".", "__cudart_", "__nv_", "__unnamed_")


@functools.lru_cache(maxsize=2)
def _contents(data: bytes) -> dict[str, bytes]:
    """Sections by name; cached, because several functions read the same two."""
    return elf.contents(data)


def kernels(data: bytes) -> tuple[str, ...]:
    """Mangled names of the kernels, in the order of the symbol table.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    with documents.foreign_parser(elf.damaged):
        symbols = _symbols(_contents(data))
    return tuple(n for n, kind, other, _ in symbols if kind == _FUNCTION and other & _ENTRY)


def variables(data: bytes) -> frozenset[str]:
    """Mangled names of the variables that host code may use, without the compiler's own.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    with documents.foreign_parser(elf.damaged):
        symbols = _symbols(_contents(data))
    return frozenset(n for n, kind, _, _ in symbols if kind == _OBJECT and not n.startswith(_OWN))


def unused(data: bytes, other: bytes) -> frozenset[str]:
    """Names of variables that only the first of two cubins has, without the unit's hashes."""
    return frozenset(_INTERNAL.sub(r"\1", name) for name in variables(data) - variables(other))


def same_code(first: bytes, second: bytes) -> bool:
    """Whether two cubins have the same instructions, constants, variables and names.

    The compiler's note and the order of the functions may differ; the first cubin may have
    constants that no code uses, if the second has no constants at all.

    Raises:
        CheckError: the bytes are not an ELF file, or a file is damaged.
    """
    with documents.foreign_parser(elf.damaged):
        return _same_code(_contents(first), _contents(second))


def _same_code(a: dict[str, bytes], b: dict[str, bytes]) -> bool:
    if {n: d for n, d in a.items() if n != _TOOL} == {n: d for n, d in b.items() if n != _TOOL}:
        return True
    if any(name.startswith(".rel.") for name in (*a, *b)):
        return False
    # If the instructions equal those of a cubin without constants, they use no constants.
    spare = set() if _OF_CONSTANTS & b.keys() else _OF_CONSTANTS & a.keys()
    first, second = (sections.keys() - _ORDERED - spare for sections in (a, b))
    second_symbols = [symbol for symbol in _symbols(b) if symbol[0]]
    first_symbols = [
        s
        for s in _symbols(a)
        if s[0] and not (spare and (s[0] in spare or (s[1] == _OBJECT and s not in second_symbols)))
    ]
    if first != second or sorted(first_symbols) != sorted(second_symbols):
        return False
    return all(_unordered(a, name) == _unordered(b, name) for name in first - {_OF_FRAMES})


def _unordered(sections: dict[str, bytes], name: str) -> object:
    """What a section says, without the numbers that the order of functions gives to symbols."""
    if name.startswith(_RELOCATIONS):
        return _relocations(sections, name)
    if name.startswith(_ATTRIBUTES):
        return _named_attributes(sections, name)
    return sections[name]


def unnamed(data: bytes) -> str:
    """Mangled name of the unit's unnamed namespace; empty if there is none or more than one."""
    names = {
        match[2][: int(match[1])] for match in _UNNAMED.finditer(data) if int(match[1]) < len(data)
    }
    return min(names).decode() if len(names) == 1 else ""


def named_like(data: bytes, other: bytes) -> bytes:
    """A cubin with the internal names of another cubin, of the same source at another path."""
    own_hashes, wanted_hashes = (
        {match[2] for match in _UNIT.finditer(cubin)} for cubin in (data, other)
    )
    if len(own_hashes) != 1 or len(wanted_hashes) != 1:
        return data
    return _UNIT.sub(lambda match: match[1] + min(wanted_hashes), data)


def _relocations(sections: dict[str, bytes], name: str) -> list[tuple[int, int, int, str]]:
    """(offset, type, addend, symbol) of each relocation of a section."""
    symbols = [symbol[0] for symbol in _symbols(sections)]
    entries = _RELOCATION.iter_unpack(sections[name])
    return sorted(
        (offset, info & 0xFFFF_FFFF, add, symbols[info >> 32]) for offset, info, add in entries
    )


def _named_attributes(sections: dict[str, bytes], name: str) -> list[tuple[int, int, bytes]]:
    """The attributes of a kernel, with symbols by name."""
    symbols = [symbol[0] for symbol in _symbols(sections)]
    return [
        (form, kind, symbols[int.from_bytes(content[:4], "little")].encode() + content[4:])
        if (form, kind) == (_SIZED, _PARAMETERS)
        else (form, kind, content)
        for form, kind, content in attributes(sections[name])
    ]


def attributes(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield format, kind and content of each attribute of a section ``.nv.info`` or ``.nv.info.*``.

    An attribute is a byte of format, a byte of kind and two bytes: a value (formats 1 to 3), or the
    size of the content that follows (format 4).
    """
    at = 0
    while at < len(data):
        form, kind, value = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        size = value if form == _SIZED else 0
        yield form, kind, data[at : at + size] if form == _SIZED else value.to_bytes(2, "little")
        at += size


def _symbols(sections: dict[str, bytes]) -> list[tuple[str, int, int, int]]:
    """(name, kind, other, size) of every symbol, by number."""
    table, names = sections.get(".symtab", b""), sections.get(".strtab", b"")
    symbols, text_left = [], 8 * len(names) + len(table)
    for name, info, other, _, _, size in _SYMBOL.iter_unpack(table):
        text = ""
        if name:
            end = names.index(b"\0", name)
            if (text_left := text_left - (end - name)) < 0:
                raise ValueError("its names overlap")
            text = names[name:end].decode()
        symbols.append((text, info & 0xF, other, size))
    return symbols

# SPDX-License-Identifier: Apache-2.0
"""What is in a piece of machine code for a GPU (a cubin, an ELF file), as far as its host sees it.

The host registers kernels and variables by name; kernels are the functions of the symbol table with
STO_CUDA_ENTRY in ``st_other``. NVIDIA documents the value in the CUDA binary utilities' manual only
by what they print; it was read off files made by nvcc 13.0.
"""

from __future__ import annotations

import functools
import re
import struct

from kernforge.binary import elf

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_RELOCATION = struct.Struct("<QQq")  # Elf64_Rela: offset, symbol and type, addend
_OBJECT, _FUNCTION = 1, 2
_ENTRY = 0x10
# It names the build of the compiler.
_TOOL = ".note.nv.tkinfo"
# What follows the order of functions, which says nothing of their code.
_ORDERED = {_TOOL, ".symtab", ".strtab", ".shstrtab", ".nv.info", ".debug_frame"}
_RELOCATIONS = ".rela"
# What the unit has for itself is named after a hash of the path that the compiler was given.
_UNIT = re.compile(rb"(_GLOBAL__N__|_INTERNAL_)([0-9a-f]{8})(?=_)")
# All of what its unnamed namespaces are called, after the length of it, as names are mangled.
_UNNAMED = re.compile(rb"(\d+)(_GLOBAL__N__[0-9a-f]{8}_\w+)")
# NVRTC keeps constants of the source that no code uses, and nvcc does not.
_OF_CONSTANTS = {".nv.global.init", ".nv.constant4", ".rela.nv.constant4"}
_INTERNAL = re.compile(r"_INTERNAL_[0-9a-f]{8}_(\w+?)_[0-9a-f]{8}")
_ATTRIBUTES = ".nv.info."
_ATTRIBUTE = struct.Struct("<BBH")
_WITH_PAYLOAD, _PARAMETERS = 4, 0x0A
_OF_FRAMES = ".rela.debug_frame"
# Constants of the compiler and of its mathematical functions.
_OWN = ("$", ".", "__cudart_", "__nv_", "__unnamed_")


@functools.lru_cache(maxsize=16)
def _contents(data: bytes) -> dict[str, bytes]:
    """Sections by name; each cubin is asked several things."""
    return elf.contents(data)


def kernels(data: bytes) -> tuple[str, ...]:
    """Mangled names of the kernels, in the order of the symbol table.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    found = _symbols(_contents(data))
    return tuple(n for n, kind, other, _ in found if kind == _FUNCTION and other & _ENTRY)


def variables(data: bytes) -> frozenset[str]:
    """Mangled names of the variables that code of the host may know; the compiler's own left out.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    found = _symbols(_contents(data))
    return frozenset(n for n, kind, _, _ in found if kind == _OBJECT and not n.startswith(_OWN))


def unused(data: bytes, other: bytes) -> frozenset[str]:
    """Names of variables that only the first of two cubins has, without what is the unit's own."""
    return frozenset(_INTERNAL.sub(r"\1", name) for name in variables(data) - variables(other))


def same_code(one: bytes, other: bytes) -> bool:
    """Whether two cubins hold the same instructions, constants, variables and names.

    The compiler's note of itself may differ, and the order of the functions; the first may hold
    constants that no code uses, if the other holds none at all.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    a, b = _contents(one), _contents(other)
    if {n: d for n, d in a.items() if n != _TOOL} == {n: d for n, d in b.items() if n != _TOOL}:
        return True
    if any(name.startswith(".rel.") for name in (*a, *b)):
        return False
    # Instructions that are the same as those without constants use none.
    spare = set() if _OF_CONSTANTS & b.keys() else _OF_CONSTANTS & a.keys()
    rest = [
        {n: d for n, d in found.items() if n not in _ORDERED and n not in spare} for found in (a, b)
    ]
    there = _named(b)
    names = [
        s
        for s in _named(a)
        if not (spare and (s[0] in spare or (s[1] == _OBJECT and s not in there)))
    ]
    if rest[0].keys() != rest[1].keys() or sorted(names) != sorted(there):
        return False
    return all(
        _relocations(a, name) == _relocations(b, name)
        if name.startswith(_RELOCATIONS)
        else _attributes(a, name) == _attributes(b, name)
        if name.startswith(_ATTRIBUTES)
        else data == rest[1][name]
        for name, data in rest[0].items()
        if name != _OF_FRAMES
    )


def unnamed(data: bytes) -> str:
    """What the code calls its unit's unnamed namespaces; empty without any, or with several."""
    found = {
        match[2][: int(match[1])] for match in _UNNAMED.finditer(data) if int(match[1]) < len(data)
    }
    return min(found).decode() if len(found) == 1 else ""


def named_like(data: bytes, other: bytes) -> bytes:
    """A cubin with its unit's own names as another's of the same source at another path."""
    ours, wanted = ({match[2] for match in _UNIT.finditer(one)} for one in (data, other))
    if len(ours) != 1 or len(wanted) != 1:
        return data
    return _UNIT.sub(lambda match: match[1] + min(wanted), data)


def _relocations(sections: dict[str, bytes], name: str) -> list[tuple[int, int, int, str]]:
    """(offset, type, addend, symbol) of each relocation of a section."""
    symbols = [found[0] for found in _symbols(sections)]
    entries = _RELOCATION.iter_unpack(sections[name])
    return sorted((at, info & 0xFFFF_FFFF, add, symbols[info >> 32]) for at, info, add in entries)


def _attributes(sections: dict[str, bytes], name: str) -> list[tuple[int, int, bytes]]:
    """(format, attribute, value) of what is said of a kernel, with symbols by name."""
    data, at, found = sections[name], 0, []
    symbols = [one[0] for one in _symbols(sections)]
    while at + _ATTRIBUTE.size <= len(data):
        form, kind, value = _ATTRIBUTE.unpack_from(data, at)
        at += _ATTRIBUTE.size
        size = value if form == _WITH_PAYLOAD else 0
        payload = data[at : at + size] if size else value.to_bytes(2, "little")
        if form == _WITH_PAYLOAD and kind == _PARAMETERS:
            number = int.from_bytes(payload[:4], "little")
            payload = symbols[number].encode() + payload[4:]
        at += size
        found.append((form, kind, payload))
    return found


def _named(sections: dict[str, bytes]) -> list[tuple[str, int, int, int]]:
    return [found for found in _symbols(sections) if found[0]]


def _symbols(sections: dict[str, bytes]) -> list[tuple[str, int, int, int]]:
    """(name, kind, other, size) of every symbol, by number."""
    table, names = sections.get(".symtab", b""), sections.get(".strtab", b"")
    found = []
    for name, info, other, _, _, size in _SYMBOL.iter_unpack(table):
        text = names[name : names.index(b"\0", name)].decode() if name else ""
        found.append((text, info & 0xF, other, size))
    return found

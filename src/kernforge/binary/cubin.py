# SPDX-License-Identifier: Apache-2.0
"""Kernels and variables of a cubin: machine code for a GPU, an ELF file.

The host registers kernels and variables by name; kernels are the functions of the symbol table with
STO_CUDA_ENTRY in ``st_other``. NVIDIA does not document the value, except by the output of the CUDA
binary utilities; it was found in files of nvcc 13.0.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator

from kernforge import untrusted
from kernforge.binary import elf

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_OBJECT, _FUNCTION = 1, 2
_ENTRY = 0x10
# Names of a unit's internal symbols have a hash of the path that the compiler was given.
_UNIT = re.compile(rb"(_GLOBAL__N__|_INTERNAL_)([0-9a-f]{8})(?=_)")
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED = 4
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
    with untrusted.foreign_parser(elf.damaged):
        symbols = _symbols(_contents(data))
    return tuple(n for n, kind, other, _ in symbols if kind == _FUNCTION and other & _ENTRY)


def variables(data: bytes) -> dict[str, int]:
    """Bytes of the variables that host code may use by mangled name, without the compiler's own.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    with untrusted.foreign_parser(elf.damaged):
        symbols = _symbols(_contents(data))
    return {n: size for n, kind, _, size in symbols if kind == _OBJECT and not n.startswith(_OWN)}


def named_like(data: bytes, other: bytes) -> bytes:
    """A cubin with the internal names of another cubin, of the same source at another path."""
    own_hashes, wanted_hashes = (
        {match[2] for match in _UNIT.finditer(cubin)} for cubin in (data, other)
    )
    if len(own_hashes) != 1 or len(wanted_hashes) != 1:
        return data
    return _UNIT.sub(lambda match: match[1] + min(wanted_hashes), data)


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

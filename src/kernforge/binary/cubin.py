# SPDX-License-Identifier: Apache-2.0
"""Kernels, variables and resources of a cubin: machine code for a GPU, an ELF file.

The host registers kernels and variables by name; kernels are the functions of the symbol table with
STO_CUDA_ENTRY in ``st_other``. NVIDIA does not document the value, except by the output of the CUDA
binary utilities; it was found in files of nvcc 13.0.

Registers, stack, spills and shared memory: ``.nv.info`` has attributes of all functions,
``.nv.info.<name>`` those of one function. The kinds have names in ``cuobjdump --dump-elf``. Their
contents are not documented either; they were found in cubins of ptxas 13.0 for sm_75 to sm_121, and
a test compares them with the output of ``ptxas -v``. The list of annotations names the instructions
that spill, and their widths give the bytes: an instruction has 16 bytes since compute capability
7.0.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from elftools.elf.sections import SymbolTableSection

from kernforge.binary import elf
from kernforge.errors import CheckError
from kernforge.system import untrusted

_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym: name, info, other, section, value, size
_OBJECT, _FUNCTION = 1, 2
_ENTRY = 0x10
# Names of a unit's internal symbols have a hash of the path that the compiler was given.
_UNIT = re.compile(rb"(_GLOBAL__N__|_INTERNAL_)([0-9a-f]{8})(?=_)")
_ATTRIBUTE = struct.Struct("<BBH")
_SIZED = 4
# Constants of the compiler and of its mathematical functions.
_OWN = ("$", ".", "__cudart_", "__nv_", "__unnamed_")
_MAGIC = b"\x7fELF"
_INFO = ".nv.info"
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_FRAME, _STACK, _REGISTERS = 0x11, 0x12, 0x2F
_BARRIERS, _ANNOTATIONS = 0x4C, 0x55
_SPILL = 1  # of the kinds of annotations
_INSTRUCTION = 16
_OPCODE, _LOAD_LOCAL, _STORE_LOCAL = 0xFFF, 0x983, 0x387
_WIDTH_AT = 73  # bit of an instruction; three bits
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)
# From this capability on, the driver reserves the begin of a kernel's shared memory.
_RESERVED_SINCE, _RESERVED = 9, 1024
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")
_ANNOTATES_SINCE = (13, 0)


@functools.lru_cache(maxsize=2)
def _contents(data: bytes) -> dict[str, bytes]:
    """Sections by name; cached, because several functions read the same two."""
    return elf.contents(data)


def kernels(data: bytes) -> tuple[str, ...]:
    """Mangled names of the kernels, in the order of the symbol table."""
    with untrusted.foreign_parser(elf.damaged):
        symbols = _symbols(_contents(data))
    return tuple(n for n, kind, other, _ in symbols if kind == _FUNCTION and other & _ENTRY)


def variables(data: bytes) -> dict[str, int]:
    """Bytes of the variables that host code may use by mangled name, without the compiler's own."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionUsage:
    """Resources of a function.

    Attributes:
        kernel: whether the function can be launched; otherwise kernels call it.
        registers: registers of a thread.
        stack: stack of a thread in bytes, with the functions that it calls.
        spill_stores: bytes that a thread stores because it has too few registers; None if the
            compiler does not record it.
        spill_loads: bytes that a thread loads again; None if the compiler does not record it.
        shared: static shared memory of a block in bytes.
        threads: largest number of threads of a block, by ``__launch_bounds__``; 0 if not declared.
        required: exact number of threads of a block, by ``__block_size__`` or ``.reqntid``; 0 if
            not declared.
    """

    symbol: str
    kernel: bool
    registers: int
    stack: int
    spill_stores: int | None
    spill_loads: int | None
    shared: int
    barriers: int
    threads: int
    required: int


def uses(data: bytes, major: int) -> tuple[FunctionUsage, ...]:
    """Resources of each function of a cubin, sorted by name.

    Args:
        major: major number of its compute capability.
    """
    if not data.startswith(_MAGIC):
        raise CheckError(
            "a cubin is compressed, so its registers cannot be read",
            hint="compile without -compress-all and --compress-mode",
        )
    with untrusted.foreign_parser(_unknown):
        return tuple(sorted(_CubinReader(data, major).functions(), key=lambda use: use.symbol))


def _unknown(reason: str) -> CheckError:
    return CheckError(
        f"a cubin has an unknown format: {reason}",
        hint="upgrade kernforge if the CUDA toolkit is newer than it",
    )


class _CubinReader:
    def __init__(self, data: bytes, major: int) -> None:
        self._major = major
        self._sections: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._names: list[str] = []
        for section in elf.opened(data).iter_sections():
            if isinstance(section, SymbolTableSection):
                self._names = [symbol.name for symbol in section.iter_symbols()]
            self._sizes[section.name] = section["sh_size"]
            if section["sh_type"] != "SHT_NOBITS":
                self._sections[section.name] = bytes(section.data())

    def functions(self) -> Iterator[FunctionUsage]:
        common_of: dict[str, dict[int, int]] = {}
        for _, kind, content in attributes(self._sections.get(_INFO, b"")):
            if kind in (_REGISTERS, _FRAME, _STACK):
                index, value = struct.unpack("<II", content)
                common_of.setdefault(self._names[index], {})[kind] = value
        for name, common in common_of.items():
            if f".text.{name}" not in self._sections:
                continue
            section = self._sections.get(f"{_INFO}.{name}", b"")
            own = {kind: content for _, kind, content in attributes(section)}
            stores, loads = self._spilled(name, own, common.get(_FRAME, 0))
            reserved = _RESERVED if self._major >= _RESERVED_SINCE else 0
            yield FunctionUsage(
                symbol=name,
                kernel=f".nv.constant0.{name}" in self._sizes,
                registers=common[_REGISTERS],
                stack=common.get(_STACK, common.get(_FRAME, 0)),
                spill_stores=stores,
                spill_loads=loads,
                shared=max(0, self._sizes.get(f".nv.shared.{name}", 0) - reserved),
                barriers=own.get(_BARRIERS, b"\0")[0],
                threads=_product(own, _MAX_THREADS),
                required=_product(own, _REQUIRED_THREADS),
            )

    def _spilled(
        self, name: str, attributes: Mapping[int, bytes], frame: int
    ) -> tuple[int | None, int | None]:
        """Bytes of the stores and loads of spilled registers."""
        annotations = attributes.get(_ANNOTATIONS)
        if annotations is None:
            # A function without a frame does not spill; a newer ptxas annotates every spill.
            is_known = not frame or self._release() >= _ANNOTATES_SINCE
            return (0, 0) if is_known else (None, None)
        text = self._sections[f".text.{name}"]
        bytes_of = {_STORE_LOCAL: 0, _LOAD_LOCAL: 0}
        for kind, place in struct.iter_unpack("<II", annotations):
            low, high = struct.unpack_from("<QQ", text, place)
            if kind != _SPILL or place % _INSTRUCTION or low & _OPCODE not in bytes_of:
                return None, None
            bytes_of[low & _OPCODE] += _WIDTHS[high >> (_WIDTH_AT - 64) & 7]
        return bytes_of[_STORE_LOCAL], bytes_of[_LOAD_LOCAL]

    def _release(self) -> tuple[int, int]:
        """Version of the toolkit that made the cubin; (0, 0) if it is not recorded."""
        match = _RELEASE.search(self._sections.get(".note.nv.tkinfo", b""))
        return (int(match[1]), int(match[2])) if match else (0, 0)


def _product(attributes: Mapping[int, bytes], kind: int) -> int:
    """Number of threads of a block, from an attribute with three sizes; 0 without the attribute."""
    if kind not in attributes:
        return 0
    x, y, z = struct.unpack("<III", attributes[kind])
    return int(x * y * z)

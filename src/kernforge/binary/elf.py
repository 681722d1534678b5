# SPDX-License-Identifier: Apache-2.0
"""Needs, exports and sections of a shared object: the dynamic part of an ELF file.

Layout: System V gABI chapters 4 and 5; symbol versions: the LSB's "Symbol Versioning" chapter.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from kernforge.errors import CheckError
from kernforge.system import untrusted

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_KINDS = {"STT_FUNC": "function", "STT_OBJECT": "object", "STT_TLS": "tls", "STT_LOOS": "function"}
_HIDDEN_VERSION = 0x8000
# Bytes of a record, by the kind of section; of Elf64_Verneed and Elf64_Verdaux, the smallest.
_RECORDS = {
    "SHT_SYMTAB": 24,
    "SHT_DYNSYM": 24,
    "SHT_DYNAMIC": 16,
    "SHT_GNU_versym": 2,
    "SHT_RELA": 24,
    "SHT_REL": 16,
}
_VERSIONS = {"SHT_GNU_verneed", "SHT_GNU_verdef"}
_VERSION_BYTES = 8
_ELF_64 = b"\x7fELF\x02"
_SECTION_TABLE = 40  # where Elf64_Ehdr has e_shoff
_SECTION = struct.Struct("<II16xQQI20x")  # sh_name, sh_type, sh_offset, sh_size, sh_link
_NOBITS, _EXTENDED = 8, 0xFFFF
_COMPRESSED = 0x800
_BITS = 64
_OVERLAP = 8  # how many times a file's size what is read of it may be
_FIRST_NAMED_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One entry of the dynamic symbol table.

    Attributes:
        version: version such as ``GLIBC_2.17``; empty if the symbol has none.
        library: soname of the library that must have the version, for an undefined symbol with a
            version.
        kind: ``function`` (also indirect functions), ``object``, ``tls``, or empty if unknown.
        weak: whether the symbol may stay undefined or be replaced by another definition.
        unique: whether the dynamic linker merges it in the whole process (STB_GNU_UNIQUE).
    """

    name: str
    version: str = ""
    library: str = ""
    kind: str = ""
    weak: bool = False
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Elf:
    """The dynamic part of a shared object; tuples keep the order of the file.

    Attributes:
        machine: ``x86_64``, ``aarch64``, or the ELF constant of another machine.
        soname: name of the library itself; empty if it has none.
        needed: sonames that the dynamic linker loads with it.
        rpath: DT_RPATH and DT_RUNPATH entries, split at the colons.
        undefined: symbols that other libraries must define.
        exported: symbols that the library defines for others.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]


def parse(data: bytes) -> Elf:
    """Parse the dynamic part of an ELF file."""
    with untrusted.foreign_parser(damaged):
        return _parse(opened(data), len(data))


def section(data: bytes, name: str) -> bytes:
    """Bytes of one section; empty if the file has no such section."""
    with untrusted.foreign_parser(damaged):
        if not data.startswith(_ELF_64):
            raise ELFError("it is not an ELF file of 64 bits")
        table, count, names = struct.unpack_from("<Q12xHH", data, _SECTION_TABLE)
        # pyelftools takes 50 ms for an object of torch's templates, and an edit waits for it.
        _, _, _, more, link = _SECTION.unpack_from(data, table)
        count, names = count or more, link if names == _EXTENDED else names
        headers = list(_SECTION.iter_unpack(data[table : table + count * _SECTION.size]))
        strings = headers[names][2]
        for at, kind, offset, size, _ in headers:
            if kind != _NOBITS and data.startswith(name.encode() + b"\0", strings + at):
                return data[offset : offset + size]
    return b""


def opened(data: bytes) -> ELFFile:
    """An ELF file whose sections lie in it, and are not more than it can hold.

    A header of a few bytes can name millions of records; pyelftools would make an object of each.
    """
    file = ELFFile(io.BytesIO(data))
    count = file.num_sections()
    if count > untrusted.RECORDS or count * file["e_shentsize"] > len(data):
        raise ELFError(f"it names {count:,} sections in {len(data):,} bytes")
    if file.elfclass != _BITS:
        raise ELFError(f"it is of {file.elfclass} bits")
    unpacked = 0
    for number in range(count):
        header = file._get_section_header(number)  # noqa: SLF001 - before anything is read of it
        if header["sh_type"] == "SHT_NOBITS":
            continue
        _refuse_section(f"section {number}", header, len(data) if number else 1 << 64)
        unpacked += header["sh_size"]
        if header["sh_flags"] & _COMPRESSED:
            at = header["sh_offset"] + 8  # of the content's size in an Elf64_Chdr
            unpacked += int.from_bytes(data[at : at + 8], "little")
        if unpacked > max(untrusted.SLACK, _OVERLAP * len(data)):
            raise ELFError("its sections overlap, or unpack to many times their size")
    return file


def _refuse_section(name: str, header: Any, end: int) -> None:
    """Refuse a section that leads out of the file, or has more records than it has place for."""
    size, kind, most = header["sh_size"], header["sh_type"], untrusted.RECORDS
    if header["sh_offset"] + size > end:
        raise ELFError(f"{name} leads out of the file")
    if kind in _RECORDS and header["sh_entsize"] != _RECORDS[kind]:
        raise ELFError(f"{name} has records of {header['sh_entsize']} bytes")
    if kind in _RECORDS and size // _RECORDS[kind] > most:
        raise ELFError(f"{name} has more than {most:,} records")
    if kind in _VERSIONS and header["sh_info"] * _VERSION_BYTES > size:
        raise ELFError(f"{name} has {header['sh_info']:,} versions in {size:,} bytes")


def _at_most(most: int, entries: Iterable[Any]) -> Iterator[Any]:
    """The entries of a list whose links may lead back into it."""
    for number, entry in enumerate(entries):
        if number >= most:
            raise ELFError(f"it has more than {most:,} records of one kind")
        yield entry


def damaged(reason: str) -> CheckError:
    """The error for a file that is not ELF, or not a whole one."""
    return CheckError(
        f"the file is not a readable ELF file: {reason}",
        hint="it is truncated or for another system: build it again",
    )


def _parse(file: ELFFile, size: int) -> Elf:
    tags = list(_at_most(untrusted.RECORDS, _dynamic_tags(file)))
    symbols = list(_dynamic_symbols(file, size))
    soname = [tag.soname for tag in tags if tag.entry.d_tag == "DT_SONAME"]
    paths = [tag.rpath for tag in tags if tag.entry.d_tag == "DT_RPATH"]
    paths += [tag.runpath for tag in tags if tag.entry.d_tag == "DT_RUNPATH"]
    return Elf(
        machine=_MACHINES.get(file["e_machine"], str(file["e_machine"])),
        soname=soname[0] if soname else "",
        needed=tuple(tag.needed for tag in tags if tag.entry.d_tag == "DT_NEEDED"),
        rpath=tuple(entry for path in paths for entry in path.split(":") if entry),
        undefined=tuple(symbol for symbol, defined in symbols if not defined),
        exported=tuple(symbol for symbol, defined in symbols if defined),
    )


def _dynamic_tags(file: ELFFile) -> Iterator[Any]:
    for section in file.iter_sections():
        if isinstance(section, DynamicSection):
            yield from section.iter_tags()


def _dynamic_symbols(file: ELFFile, size: int) -> Iterator[tuple[Symbol, bool]]:
    """Yield every global symbol, and whether the file defines it."""
    text = max(untrusted.SLACK, _OVERLAP * size)
    table = file.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return
    needs, definitions, indices = _versions(file)
    for position, entry in enumerate(table.iter_symbols()):
        bind = entry["st_info"]["bind"]
        if (text := text - len(entry.name)) < 0:
            raise ELFError("its names overlap, or are much longer than the file")
        # A version definition has an absolute symbol with the version's own name.
        if not entry.name or bind == "STB_LOCAL" or entry["st_shndx"] == "SHN_ABS":
            continue
        defined = entry["st_shndx"] != "SHN_UNDEF"
        number = indices[position] & ~_HIDDEN_VERSION if indices else 0
        library, version = needs.get(number, ("", ""))
        if defined:
            library, version = "", definitions.get(number, "")
        yield (
            Symbol(
                name=entry.name,
                version=version,
                library=library,
                kind=_KINDS.get(entry["st_info"]["type"], ""),
                weak=bind == "STB_WEAK",
                # pyelftools gives bind 10 the name of its range.
                unique=bind in {"STB_LOOS", "STB_GNU_UNIQUE"},
            ),
            defined,
        )


def _versions(file: ELFFile) -> tuple[dict[int, tuple[str, str]], dict[int, str], list[int]]:
    """Needed (library, version) and defined versions by index, and the index of each symbol."""
    needs: dict[int, tuple[str, str]] = {}
    definitions: dict[int, str] = {}
    indices: list[int] = []
    for section in file.iter_sections():
        most = section["sh_size"] // _VERSION_BYTES
        if isinstance(section, GNUVerNeedSection):
            pairs = (
                (library, v) for library, versions in section.iter_versions() for v in versions
            )
            needs |= {
                v["vna_other"]: (library.name, v.name) for library, v in _at_most(most, pairs)
            }
        elif isinstance(section, GNUVerDefSection):
            for definition, names in section.iter_versions():
                if definition["vd_ndx"] >= _FIRST_NAMED_VERSION:
                    definitions[definition["vd_ndx"]] = next(names).name
        elif isinstance(section, GNUVerSymSection):
            found_indices = (entry["ndx"] for entry in section.iter_symbols())
            # pyelftools gives the two reserved indices as names.
            indices = [index if isinstance(index, int) else 0 for index in found_indices]
    return needs, definitions, indices


def contents(data: bytes) -> dict[str, bytes]:
    """Bytes of every named section that has contents in the file, in the order of the table."""
    with untrusted.foreign_parser(damaged):
        return {
            section.name: bytes(section.data())
            for section in opened(data).iter_sections()
            if section.name and section["sh_type"] != "SHT_NOBITS"
        }

# SPDX-License-Identifier: Apache-2.0
"""Needs, exports and sections of a shared object: the dynamic part of an ELF file.

Layout: System V gABI chapters 4 and 5; symbol versions: the LSB's "Symbol Versioning" chapter.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from elftools.common.exceptions import ELFError
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection, GNUVerSymSection
from elftools.elf.sections import SymbolTableSection

from kernforge.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterator

_MACHINES = {"EM_X86_64": "x86_64", "EM_AARCH64": "aarch64"}
_KINDS = {"STT_FUNC": "function", "STT_OBJECT": "object", "STT_TLS": "tls", "STT_LOOS": "function"}
_HIDDEN_VERSION = 0x8000
_FIRST_NAMED_VERSION = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Symbol:
    """One entry of the dynamic symbol table.

    Attributes:
        name: mangled name.
        version: version such as ``GLIBC_2.17``; empty if the symbol has none.
        library: soname of the library that must have the version, for an undefined symbol with a
            version.
        kind: ``function`` (also indirect functions), ``object``, ``tls``, or empty if unknown.
        weak: whether the symbol may stay undefined or be replaced by another definition.
        unique: whether the dynamic linker merges it in the whole process (STB_GNU_UNIQUE).
        default: for a definition, whether a linker takes this version by default.
    """

    name: str
    version: str = ""
    library: str = ""
    kind: str = ""
    weak: bool = False
    unique: bool = False
    default: bool = True


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
        sections: names of the sections.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]
    sections: tuple[str, ...]


def parse(data: bytes) -> Elf:
    """Parse the dynamic part of an ELF file.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    try:
        return _parse(ELFFile(io.BytesIO(data)))
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error


def section(data: bytes, name: str) -> bytes:
    """Bytes of one section; empty if the file has no such section.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    try:
        section_ = ELFFile(io.BytesIO(data)).get_section_by_name(name)
        return b"" if section_ is None else bytes(section_.data())
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> CheckError:
    return CheckError(
        f"the file is not a readable ELF file: {error}",
        hint="it is truncated or for another system: build it again",
    )


def _parse(file: ELFFile) -> Elf:
    tags = list(_dynamic_tags(file))
    symbols = list(_dynamic_symbols(file))
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
        sections=tuple(section.name for section in file.iter_sections() if section.name),
    )


def _dynamic_tags(file: ELFFile) -> Iterator[Any]:
    for section in file.iter_sections():
        if isinstance(section, DynamicSection):
            yield from section.iter_tags()


def _dynamic_symbols(file: ELFFile) -> Iterator[tuple[Symbol, bool]]:
    """Yield every global symbol, and whether the file defines it."""
    table = file.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return
    needs, definitions, indices = _versions(file)
    for position, entry in enumerate(table.iter_symbols()):
        bind = entry["st_info"]["bind"]
        # A version definition has an absolute symbol with the version's own name.
        if not entry.name or bind == "STB_LOCAL" or entry["st_shndx"] == "SHN_ABS":
            continue
        defined = entry["st_shndx"] != "SHN_UNDEF"
        index = indices[position] if indices else 0
        number = index & ~_HIDDEN_VERSION
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
                default=not index & _HIDDEN_VERSION,
            ),
            defined,
        )


def _versions(file: ELFFile) -> tuple[dict[int, tuple[str, str]], dict[int, str], list[int]]:
    """Needed (library, version) and defined versions by index, and the index of each symbol."""
    needs: dict[int, tuple[str, str]] = {}
    definitions: dict[int, str] = {}
    indices: list[int] = []
    for section in file.iter_sections():
        if isinstance(section, GNUVerNeedSection):
            for library, versions in section.iter_versions():
                needs |= {v["vna_other"]: (library.name, v.name) for v in versions}
        elif isinstance(section, GNUVerDefSection):
            for definition, names in section.iter_versions():
                if definition["vd_ndx"] >= _FIRST_NAMED_VERSION:
                    definitions[definition["vd_ndx"]] = next(names).name
        elif isinstance(section, GNUVerSymSection):
            indices = [_index(entry["ndx"]) for entry in section.iter_symbols()]
    return needs, definitions, indices


def _index(value: int | str) -> int:
    """Version index of a symbol; pyelftools gives the two reserved indices as names."""
    return value if isinstance(value, int) else 0


def contents(data: bytes) -> dict[str, bytes]:
    """Bytes of every named section that has contents in the file, in the order of the table.

    Raises:
        CheckError: the bytes are not an ELF file, or the file is damaged.
    """
    try:
        return {
            section.name: bytes(section.data())
            for section in ELFFile(io.BytesIO(data)).iter_sections()
            if section.name and section["sh_type"] != "SHT_NOBITS"
        }
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error

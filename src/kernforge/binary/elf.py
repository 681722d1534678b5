# SPDX-License-Identifier: Apache-2.0
"""What a shared object asks for and offers: the dynamic part of an ELF file, read from its bytes.

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
        name: as the linker knows it, mangled.
        version: ``GLIBC_2.17``; empty when it has none.
        library: for an undefined versioned symbol the soname that has to provide the version.
        kind: ``function`` (indirect ones too), ``object``, ``tls``, or empty when not said.
        weak: whether it may stay undefined, or give way to another definition.
        unique: whether the dynamic linker merges it over the whole process (STB_GNU_UNIQUE).
        default: for a definition whether a linker picks this version when none is asked for.
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
        soname: its own name; empty when it has none.
        needed: sonames that the dynamic linker loads with it.
        rpath: DT_RPATH and DT_RUNPATH entries, split at the colons.
        undefined: symbols that another library has to define.
        exported: symbols that it defines for others.
        sections: names of its sections.
    """

    machine: str
    soname: str
    needed: tuple[str, ...]
    rpath: tuple[str, ...]
    undefined: tuple[Symbol, ...]
    exported: tuple[Symbol, ...]
    sections: tuple[str, ...]


def parse(data: bytes) -> Elf:
    """Read the dynamic part of an ELF file.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    try:
        return _parse(ELFFile(io.BytesIO(data)))
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error


def section(data: bytes, name: str) -> bytes:
    """Bytes of one section; empty when the file has no such section.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    try:
        found = ELFFile(io.BytesIO(data)).get_section_by_name(name)
        return b"" if found is None else bytes(found.data())
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error


def _damaged(error: Exception) -> CheckError:
    return CheckError(
        f"the file is not a readable ELF file: {error}",
        hint="it was cut short or is for another system: build it again",
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
        sections=tuple(found.name for found in file.iter_sections() if found.name),
    )


def _dynamic_tags(file: ELFFile) -> Iterator[Any]:
    for found in file.iter_sections():
        if isinstance(found, DynamicSection):
            yield from found.iter_tags()


def _dynamic_symbols(file: ELFFile) -> Iterator[tuple[Symbol, bool]]:
    """Yield every global symbol, and whether the file defines it."""
    table = file.get_section_by_name(".dynsym")
    if not isinstance(table, SymbolTableSection):
        return
    needs, definitions, indices = _versions(file)
    for position, entry in enumerate(table.iter_symbols()):
        bind = entry["st_info"]["bind"]
        # A version definition shows up as an absolute symbol of the version's own name.
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
                # pyelftools knows bind 10 by the name of its range.
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
    for found in file.iter_sections():
        if isinstance(found, GNUVerNeedSection):
            for library, versions in found.iter_versions():
                needs |= {v["vna_other"]: (library.name, v.name) for v in versions}
        elif isinstance(found, GNUVerDefSection):
            for definition, names in found.iter_versions():
                if definition["vd_ndx"] >= _FIRST_NAMED_VERSION:
                    definitions[definition["vd_ndx"]] = next(names).name
        elif isinstance(found, GNUVerSymSection):
            indices = [_index(entry["ndx"]) for entry in found.iter_symbols()]
    return needs, definitions, indices


def _index(value: int | str) -> int:
    """Version index of a symbol; the two reserved ones come with a name."""
    return value if isinstance(value, int) else 0


def contents(data: bytes) -> dict[str, bytes]:
    """Bytes of every named section that takes room in the file, in the order of its table.

    Raises:
        CheckError: the bytes are no ELF file, or a damaged one.
    """
    try:
        return {
            found.name: bytes(found.data())
            for found in ELFFile(io.BytesIO(data)).iter_sections()
            if found.name and found["sh_type"] != "SHT_NOBITS"
        }
    except (ELFError, UnicodeDecodeError) as error:
        raise _damaged(error) from error

# SPDX-License-Identifier: Apache-2.0
"""Which GPU architectures a shared object carries code for, read from its CUDA fat binaries.

The section ``.nv_fatbin`` is a row of regions, one for each translation unit. A region is a header
(magic, u16 version, u16 header bytes, u64 payload bytes) and entries; an entry is a header and its
payload. Of the entry's header, all little-endian: u16 kind at 0, u32 header bytes at 4, u64 payload
bytes at 8, u32 architecture at 28 (90 for compute capability 9.0), u64 flags at 40. NVIDIA does not
document this; it was read off files made by nvcc 13.0 and agrees with ``cuobjdump --list-elf
--list-ptx`` 13.2, which however does not show the ``f`` of a family's cubin. Compressed payloads
have plain headers, so nothing has to be unpacked.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kernforge.binary import elf
from kernforge.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

SECTION = ".nv_fatbin"

_MAGIC = 0xBA55ED50
_REGION = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_ALIGNMENT = 8
_PTX, _CUBIN = 1, 2
_SIZES = (8, 8)  # where a region and an entry say how long their payloads are
_ELF = b"\x7fELF"  # what machine code begins with that is not compressed
_FLAG_SPECIFIC = 1 << 20  # sm_90a: this architecture only
_FLAG_FAMILY = 1 << 21  # sm_100f: its family


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """What a fat binary holds code for, each in order of number, then suffix.

    Attributes:
        cubins: compute capabilities with machine code, as in ``9.0``, ``9.0a`` or ``10.0f``.
        ptx: compute capabilities with PTX that the driver can compile.
    """

    cubins: tuple[str, ...]
    ptx: tuple[str, ...]


def architectures(elf_bytes: bytes) -> Architectures:
    """Architectures in the fat binaries of a shared object; both empty when it has none.

    Raises:
        CheckError: the file is no ELF file, or its fat binaries cannot be read.
    """
    try:
        entries = list(_entries(elf.section(elf_bytes, SECTION)))
    except struct.error as error:
        raise _unreadable("it ends inside a header") from error
    return Architectures(
        cubins=_names(arch for kind, arch in entries if kind == _CUBIN),
        ptx=_names(arch for kind, arch in entries if kind == _PTX),
    )


def cubins(elf_bytes: bytes) -> tuple[tuple[str, bytes], ...]:
    """Machine code in the fat binaries of an object or shared object, in the order of the file.

    Returns:
        Pairs of a compute capability, as ``9.0`` or ``9.0a``, and a cubin, as it lies there: it may
        be compressed.

    Raises:
        CheckError: the file is no ELF file, or its fat binaries cannot be read.
    """
    try:
        found = list(_payloads(elf.section(elf_bytes, SECTION)))
    except struct.error as error:
        raise _unreadable("it ends inside a header") from error
    return tuple((_names([arch])[0], data) for kind, arch, data in found if kind == _CUBIN)


def one_cubin(section: bytes) -> bytes | None:
    """The machine code in a section ``.nv_fatbin`` that holds one plain piece of it and nothing else."""
    try:
        magic, _, header, size = _REGION.unpack_from(section)
        kind, _, before, length, _, _ = _ENTRY.unpack_from(section, header)
    except struct.error:
        return None
    end = header + size
    whole = magic == _MAGIC and header >= _REGION.size and not any(section[end:])
    if not whole or kind != _CUBIN or before < _ENTRY.size or before + length != size:
        return None
    found = section[header + before : end]
    return found if found.startswith(_ELF) else None


def with_cubin(section: bytes, cubin: bytes) -> bytes:
    """The section with other machine code in the place of its one piece; see ``one_cubin``.

    What nvcc writes for that code: lengths and payload are all that differ.
    """
    header: int = _REGION.unpack_from(section)[2]
    before: int = _ENTRY.unpack_from(section, header)[2]
    cubin += bytes(-len(cubin) % _ALIGNMENT)
    found = bytearray(section[: header + before])
    struct.pack_into("<Q", found, _SIZES[0], before + len(cubin))
    struct.pack_into("<Q", found, header + _SIZES[1], len(cubin))
    return bytes(found) + cubin


def _entries(data: bytes) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield (kind, (architecture, suffix)) of every entry of every region."""
    return ((kind, arch) for kind, arch, _ in _payloads(data))


def _payloads(data: bytes) -> Iterator[tuple[int, tuple[int, str], bytes]]:
    """Yield (kind, (architecture, suffix), payload) of every entry of every region."""
    offset = 0
    while offset < len(data):
        if not any(data[offset : offset + _ALIGNMENT]):  # padding between two objects' regions
            offset += _ALIGNMENT
            continue
        magic, _, header, size = _REGION.unpack_from(data, offset)
        end = offset + header + size
        if magic != _MAGIC or header < _REGION.size or end > len(data):
            raise _unreadable(f"there is no region at byte {offset}")
        offset += header
        while offset < end:
            kind, _, header, size, arch, flags = _ENTRY.unpack_from(data, offset)
            if header < _ENTRY.size:
                raise _unreadable(f"there is no entry at byte {offset}")
            suffix = "a" if flags & _FLAG_SPECIFIC else "f" if flags & _FLAG_FAMILY else ""
            offset += header
            yield kind, (arch, suffix), data[offset : offset + size]
            offset += size


def _names(found: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(f"{arch // 10}.{arch % 10}{suffix}" for arch, suffix in sorted(set(found)))


def _unreadable(why: str) -> CheckError:
    return CheckError(
        f"the section {SECTION} has an unknown format: {why}",
        hint="it may come from a CUDA toolkit newer than this kernforge knows",
    )

# SPDX-License-Identifier: Apache-2.0
"""GPU architectures and cubins of a shared object, from its CUDA fat binaries.

The section ``.nv_fatbin`` is a sequence of regions, one for each translation unit. A region is a
header (magic, u16 version, u16 header bytes, u64 payload bytes) and entries; an entry is a header
and its payload. Fields of the entry's header, all little-endian: u16 kind at 0, u32 header bytes at
4, u64 payload bytes at 8, u32 architecture at 28 (90 for compute capability 9.0), u64 flags at 40.
NVIDIA does not document this; it was found in files of nvcc 13.0 and agrees with
``cuobjdump --list-elf --list-ptx`` 13.2, except that cuobjdump does not show the ``f`` of a
family's cubin. Compressed payloads have plain headers, so that nothing must be unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kernforge.binary import elf
from kernforge.errors import CheckError

SECTION = ".nv_fatbin"

_MAGIC = 0xBA55ED50
_REGION = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQ12xI8xQ")
_ALIGNMENT = 8
_PTX, _CUBIN = 1, 2
_LENGTH_AT = 8  # of the payload's length, in the headers of a region and of an entry
_ELF = b"\x7fELF"  # first bytes of machine code that is not compressed
_FLAG_SPECIFIC = 1 << 20  # sm_90a: this architecture only
_FLAG_FAMILY = 1 << 21  # sm_100f: its family


@dataclass(frozen=True, slots=True, kw_only=True)
class Architectures:
    """Architectures of a fat binary, each list in the order of number, then suffix.

    Attributes:
        cubins: compute capabilities with machine code, such as ``9.0``, ``9.0a`` or ``10.0f``.
        ptx: compute capabilities with PTX that the driver can compile.
    """

    cubins: tuple[str, ...]
    ptx: tuple[str, ...]


def architectures(elf_bytes: bytes) -> Architectures:
    """Architectures in the fat binaries of a shared object; both lists are empty without any."""
    entries = [(kind, arch) for kind, arch, _ in _entries(elf_bytes)]
    return Architectures(
        cubins=_names(arch for kind, arch in entries if kind == _CUBIN),
        ptx=_names(arch for kind, arch in entries if kind == _PTX),
    )


def cubins(elf_bytes: bytes) -> tuple[tuple[str, bytes], ...]:
    """Machine code in the fat binaries of an object or shared object, in the order of the file.

    Returns:
        Pairs of a compute capability, such as ``9.0`` or ``9.0a``, and a cubin, which may be
        compressed.
    """
    return tuple(
        (_names([arch])[0], data) for kind, arch, data in _entries(elf_bytes) if kind == _CUBIN
    )


def one_cubin(section: bytes) -> bytes | None:
    """The cubin of a section ``.nv_fatbin`` with one uncompressed cubin alone; otherwise None."""
    try:
        magic, _, header, size = _REGION.unpack_from(section)
        kind, _, before, length, _, _ = _ENTRY.unpack_from(section, header)
    except struct.error:
        return None
    end = header + size
    is_single = magic == _MAGIC and header >= _REGION.size and not any(section[end:])
    if not is_single or kind != _CUBIN or before < _ENTRY.size or before + length != size:
        return None
    cubin = section[header + before : end]
    return cubin if cubin.startswith(_ELF) else None


def with_cubin(section: bytes, cubin: bytes) -> bytes:
    """The section with another cubin instead of its only one (see ``one_cubin``).

    The result equals the output of nvcc for that code: only lengths and payload differ.
    """
    header: int = _REGION.unpack_from(section)[2]
    entry_header: int = _ENTRY.unpack_from(section, header)[2]
    cubin += bytes(-len(cubin) % _ALIGNMENT)
    changed = bytearray(section[: header + entry_header])
    struct.pack_into("<Q", changed, _LENGTH_AT, entry_header + len(cubin))
    struct.pack_into("<Q", changed, header + _LENGTH_AT, len(cubin))
    return bytes(changed) + cubin


def _entries(elf_bytes: bytes) -> Iterator[tuple[int, tuple[int, str], bytes]]:
    """Yield (kind, (architecture, suffix), payload) of every entry of every region."""
    try:
        yield from _parsed(elf.section(elf_bytes, SECTION))
    except struct.error as error:
        raise _unreadable("it ends inside a header") from error


def _parsed(data: bytes) -> Iterator[tuple[int, tuple[int, str], bytes]]:
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


def _names(archs: Iterable[tuple[int, str]]) -> tuple[str, ...]:
    return tuple(f"{arch // 10}.{arch % 10}{suffix}" for arch, suffix in sorted(set(archs)))


def _unreadable(problem: str) -> CheckError:
    return CheckError(
        f"the section {SECTION} has an unknown format: {problem}",
        hint="upgrade kernforge if the CUDA toolkit is newer than it",
    )

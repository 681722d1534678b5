# SPDX-License-Identifier: Apache-2.0
"""What a shared object says to the dynamic loader: its own name, and those of what it needs.

The format is ELF (System V ABI, chapters 4 and 5), 64 bits, little endian. The application half
has no ``elftools``, and needs two entries of one table.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass

# e_ident, e_type, e_machine, e_version, e_entry, e_phoff, e_shoff, e_flags, e_ehsize, e_phentsize,
# e_phnum; p_type, p_flags, p_offset, p_vaddr, p_paddr, p_filesz, p_memsz, p_align; d_tag, d_val
_HEADER = struct.Struct("<16sHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")
_ENTRY = struct.Struct("<QQ")
_IDENT = b"\x7fELF\x02\x01"
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_NEEDED, _DT_STRTAB, _DT_SONAME = 1, 5, 14
_MOST_BYTES = 1 << 20
_MOST_NAME = 4096


@dataclass(frozen=True, slots=True)
class LibraryNames:
    """Names of a shared object.

    Attributes:
        soname: by which others name it; empty where it has none.
        needed: the shared objects that it needs, by their names.
    """

    soname: str = ""
    needed: tuple[str, ...] = ()


def read_names(descriptor: int) -> LibraryNames:
    """The names in an open file; none where it is not such a file, or not one that can be read."""
    try:
        return _read(descriptor)
    except (struct.error, UnicodeDecodeError):
        return LibraryNames()


def _read(descriptor: int) -> LibraryNames:
    header = _HEADER.unpack(os.pread(descriptor, _HEADER.size, 0))
    if not header[0].startswith(_IDENT):
        return LibraryNames()
    offset, size, count = header[5], header[9], header[10]
    table = os.pread(descriptor, size * count, offset)
    segments = [_SEGMENT.unpack_from(table, size * n) for n in range(count)]
    dynamic = next((s for s in segments if s[0] == _PT_DYNAMIC), None)
    if dynamic is None:
        return LibraryNames()
    body = os.pread(descriptor, min(dynamic[5], _MOST_BYTES), dynamic[2])
    whole = len(body) - len(body) % _ENTRY.size
    entries = list(_ENTRY.iter_unpack(body[:whole]))
    address = next((value for tag, value in entries if tag == _DT_STRTAB), 0)
    # The table of names is given by its address in memory; its segment says where the file has it.
    start = next(
        (
            s[2] + address - s[3]
            for s in segments
            if s[0] == _PT_LOAD and s[3] <= address < s[3] + s[5]
        ),
        None,
    )
    if start is None:
        return LibraryNames()

    def text(at: int) -> str:
        return os.pread(descriptor, _MOST_NAME, start + at).partition(b"\0")[0].decode()

    return LibraryNames(
        soname=next((text(value) for tag, value in entries if tag == _DT_SONAME), ""),
        needed=tuple(text(value) for tag, value in entries if tag == _DT_NEEDED),
    )

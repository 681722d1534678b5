# SPDX-License-Identifier: Apache-2.0
"""Real Mach-O libraries, and what to change in them."""

import lzma
import struct
from pathlib import Path

DATA = Path(__file__).parents[1] / "data" / "macho"
BUILD_VERSION, CODE_SIGNATURE = 0x32, 0x1D
_UNKNOWN = 0x7F000000  # a number that no load command has


def read(name: str) -> bytes:
    """A library of ``tests/data/macho``."""
    return lzma.decompress((DATA / f"{name}.xz").read_bytes())


def command(data: bytes, wanted: int) -> int:
    """Where a load command begins."""
    position = 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        number, size = struct.unpack_from("<2I", data, position)
        if number == wanted:
            return position
        position += size
    raise LookupError(wanted)


def without(data: bytes, number: int) -> bytes:
    """The same library without a load command."""
    changed = bytearray(data)
    struct.pack_into("<I", changed, command(data, number), _UNKNOWN)
    return bytes(changed)


def needing(data: bytes, major: int, minor: int = 0) -> bytes:
    """The same library for another macOS."""
    changed = bytearray(data)
    struct.pack_into("<I", changed, command(data, BUILD_VERSION) + 12, major << 16 | minor << 8)
    return bytes(changed)


def universal(*slices: tuple[int, bytes]) -> bytes:
    """A file for several CPUs, given the number of each and its library."""
    offset, table, body = 4096, b"", b""
    for cpu, data in slices:
        table += struct.pack(">5I", cpu, 0, offset + len(body), len(data), 12)
        body += data
    head = struct.pack(">2I", 0xCAFEBABE, len(slices)) + table
    return head.ljust(offset, b"\0") + body

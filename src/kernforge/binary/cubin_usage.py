# SPDX-License-Identifier: Apache-2.0
"""What the kernels of a cubin need, read from its ELF sections.

``.nv.info`` holds attributes of all functions, ``.nv.info.<name>`` those of one. An attribute is a
byte of format, a byte of kind and two bytes: a value (formats 1 to 3), or the size of what follows
(format 4). The kinds have names in ``cuobjdump --dump-elf``. NVIDIA does not document their
contents; they were read off cubins of ptxas 13.0 for sm_75 to sm_121, and a test compares with what
``ptxas -v`` says. The list of annotations names the instructions that spill, and their widths give
the bytes: a machine instruction takes 16 bytes since compute capability 7.0.
"""

from __future__ import annotations

import io
import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from kernforge.errors import CheckError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MAGIC = b"\x7fELF"
_INFO = ".nv.info"
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_FRAME, _STACK, _REGISTERS = 0x11, 0x12, 0x2F
_BARRIERS, _ANNOTATIONS = 0x4C, 0x55
_BYTE, _HALF, _SIZED = 2, 3, 4
_SPILL = 1  # of the kinds of annotations
_INSTRUCTION = 16
_OPCODE, _LOAD_LOCAL, _STORE_LOCAL = 0xFFF, 0x983, 0x387
_WIDTH_AT = 73  # bit of an instruction; three bits
_WIDTHS = (1, 1, 2, 2, 4, 8, 16, 16)
# Shared memory of a kernel begins with what the driver keeps, from this capability on.
_RESERVED_SINCE, _RESERVED = 9, 1024
_RELEASE = re.compile(rb"release (\d+)\.(\d+)")
_ANNOTATES_SINCE = (13, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Use:
    """What a thread or a block of one function takes.

    Attributes:
        symbol: its mangled name.
        kernel: whether it can be launched; else it is a function that kernels call.
        registers: of a thread.
        stack: bytes of a thread, with those of what it calls.
        spill_stores: bytes that a thread's instructions put there for want of registers; None: the
            compiler that made it does not say.
        spill_loads: bytes that they take back.
        shared: bytes of static shared memory.
        barriers: named barriers.
        threads: the most of a block by ``__launch_bounds__``; 0: not said.
        required: exactly those of a block by ``__block_size__`` or ``.reqntid``; 0: not said.
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


def uses(data: bytes, major: int) -> tuple[Use, ...]:
    """What each function of a cubin takes, by name.

    Args:
        data: the cubin.
        major: of the compute capability that it is for.

    Raises:
        CheckError: it is no cubin that can be read, as one that is compressed.
    """
    if not data.startswith(_MAGIC):
        raise CheckError(
            "a cubin is compressed, so its registers cannot be read",
            hint="compile without -compress-all and --compress-mode",
        )
    try:
        return tuple(sorted(_Reader(data, major).uses(), key=lambda use: use.symbol))
    except (ELFError, struct.error, LookupError, OverflowError, ValueError) as error:
        raise CheckError(
            f"a cubin has an unknown format: {error}",
            hint="it may come from a CUDA toolkit newer than this kernforge knows",
        ) from error


class _Reader:
    def __init__(self, data: bytes, major: int) -> None:
        self._major = major
        self._sections: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}
        self._names: list[str] = []
        for found in ELFFile(io.BytesIO(data)).iter_sections():
            if isinstance(found, SymbolTableSection):
                self._names = [symbol.name for symbol in found.iter_symbols()]
            self._sizes[found.name] = found["sh_size"]
            if found["sh_type"] != "SHT_NOBITS":
                self._sections[found.name] = bytes(found.data())

    def uses(self) -> Iterator[Use]:
        every: dict[str, dict[int, int]] = {}
        for kind, content in _attributes(self._sections.get(_INFO, b"")):
            if kind in (_REGISTERS, _FRAME, _STACK):
                index, value = struct.unpack("<II", content)
                every.setdefault(self._names[index], {})[kind] = value
        for name, common in every.items():
            if f".text.{name}" not in self._sections:
                continue
            own = dict(_attributes(self._sections.get(f"{_INFO}.{name}", b"")))
            stores, loads = self._spilled(name, own, common.get(_FRAME, 0))
            kept = _RESERVED if self._major >= _RESERVED_SINCE else 0
            yield Use(
                symbol=name,
                kernel=f".nv.constant0.{name}" in self._sizes,
                registers=common[_REGISTERS],
                stack=common.get(_STACK, common.get(_FRAME, 0)),
                spill_stores=stores,
                spill_loads=loads,
                shared=max(0, self._sizes.get(f".nv.shared.{name}", 0) - kept),
                barriers=own.get(_BARRIERS, b"\0")[0],
                threads=_product(own, _MAX_THREADS),
                required=_product(own, _REQUIRED_THREADS),
            )

    def _spilled(
        self, name: str, own: Mapping[int, bytes], frame: int
    ) -> tuple[int | None, int | None]:
        """Bytes of the stores and loads that are there for want of registers."""
        noted = own.get(_ANNOTATIONS)
        if noted is None:
            # What has no frame spills nothing, and a ptxas that annotates would have said so.
            says = not frame or self._release() >= _ANNOTATES_SINCE
            return (0, 0) if says else (None, None)
        text = self._sections[f".text.{name}"]
        bytes_of = {_STORE_LOCAL: 0, _LOAD_LOCAL: 0}
        for kind, place in struct.iter_unpack("<II", noted):
            low, high = struct.unpack_from("<QQ", text, place)
            if kind != _SPILL or place % _INSTRUCTION or low & _OPCODE not in bytes_of:
                return None, None
            bytes_of[low & _OPCODE] += _WIDTHS[high >> (_WIDTH_AT - 64) & 7]
        return bytes_of[_STORE_LOCAL], bytes_of[_LOAD_LOCAL]

    def _release(self) -> tuple[int, int]:
        """Version of the toolkit that made it; the lowest where it does not say."""
        found = _RELEASE.search(self._sections.get(".note.nv.tkinfo", b""))
        return (int(found[1]), int(found[2])) if found else (0, 0)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each attribute's kind and content."""
    offset = 0
    while offset < len(data):
        form, kind, value = struct.unpack_from("<BBH", data, offset)
        offset += 4
        if form == _SIZED:
            yield kind, data[offset : offset + value]
            offset += value
        elif form in (_BYTE, _HALF):
            yield kind, struct.pack("<H", value)
        else:
            yield kind, b""


def _product(own: Mapping[int, bytes], kind: int) -> int:
    """Threads of a block whose three sizes an attribute holds; 0 where there is none."""
    if kind not in own:
        return 0
    x, y, z = struct.unpack("<III", own[kind])
    return int(x * y * z)

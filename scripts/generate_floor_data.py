# SPDX-License-Identifier: Apache-2.0

"""Write the symbol lists of the ABI floor: ``src/kernforge/data/{glibc-2.28,gcc-8}.txt``.

    python scripts/generate_floor_data.py --abilists FILE --runtime x86_64=DIR --runtime aarch64=DIR

FILE is ``lib/libc/glibc/abilists`` of the ``ziglang`` wheel: for each symbol of each glibc release
which library owned it. Its encoding is described in the README of ziglang/glibc-abi-tool and read
by zig's ``src/libs/glibc.zig``. A DIR holds ``libstdc++.so.6`` and ``libgcc_s.so.1`` of any GCC >=
8 for that CPU, and for x86_64 glibc's ``libmvec.so.1``: these export every older version too, so
the list of an old release is the list of a new one up to a version.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

from kernforge.binary import elf

DATA = Path(__file__).parents[1] / "src" / "kernforge" / "data"
FLOOR = {"GLIBC": (2, 28), "GLIBCXX": (3, 4, 24), "CXXABI": (1, 3, 11), "GCC": (7, 0, 0)}
CPUS = ("x86_64", "aarch64")
SONAMES = {
    "c": "libc.so.6",
    "m": "libm.so.6",
    "pthread": "libpthread.so.0",
    "dl": "libdl.so.2",
    "rt": "librt.so.1",
    "resolv": "libresolv.so.2",
    "util": "libutil.so.1",
}
LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}
# Versions that have a word instead of a number; both exist since GCC 4.7.
UNNUMBERED = {"CXXABI_FLOAT128", "CXXABI_TM_1"}
HEADER = """\
# SPDX-License-Identifier: Apache-2.0
# Symbols that exist at the ABI floor, each at its highest version at or below it.
# A section is [library version cpu kind]; one name a line.
# Written by scripts/generate_floor_data.py; do not edit. {source}
"""
TARGET_END = 0x80


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """One symbol at its highest version within the floor."""

    library: str
    version: str
    cpu: str
    kind: str
    name: str


class AbiLists:
    """A reader of zig's file; integers are little-endian, sets of targets are LEB128."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.libraries = [self.text() for _ in range(self.number(1))]
        count = self.number(1)
        self.versions = [(self.number(1), self.number(1), self.number(1)) for _ in range(count)]
        self.targets = [self.text() for _ in range(self.number(1))]

    def number(self, size: int) -> int:
        """Next integer of so many bytes."""
        self.at += size
        return int.from_bytes(self.data[self.at - size : self.at], "little")

    def leb128(self) -> int:
        """Next integer of seven bits a byte."""
        value = shift = 0
        while True:
            byte = self.number(1)
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < TARGET_END:
                return value

    def text(self) -> str:
        """Next text up to a zero byte."""
        end = self.data.index(0, self.at)
        found, self.at = self.data[self.at : end].decode(), end + 1
        return found

    def symbols(self, cpu: str) -> list[tuple[str, str, str, tuple[int, ...]]]:
        """(name, kind, library, version) of every inclusion for one CPU."""
        start, found = self.at, []
        bit = 1 << self.targets.index(f"{cpu}-linux-gnu")
        for kind in ("function", "object"):
            name = ""
            for _ in range(self.number(2)):
                name = name or self.text()
                applies = bool(self.leb128() & bit)
                if kind == "object":
                    self.leb128()  # its size: only executables copy objects
                library = self.number(1)
                last = False
                while not last:
                    version = self.number(1)
                    last = bool(version & 0x80)
                    if applies:
                        owner = self.libraries[library & 0x7F]
                        found.append((name, kind, owner, self.versions[version & 0x7F]))
                if library & 0x80:
                    name = ""
        self.at = start
        return found


def glibc(abilists: AbiLists) -> list[Entry]:
    """Every symbol of glibc at the floor, under each library that had it."""
    entries = []
    for cpu in CPUS:
        best: dict[tuple[str, str, str], tuple[int, ...]] = {}
        for name, kind, owner, version in abilists.symbols(cpu):
            if version[:2] <= FLOOR["GLIBC"]:
                place = (name, kind, owner)
                best[place] = max(version, best.get(place, ()))
        for (name, kind, owner), version in best.items():
            library = LOADERS[cpu] if owner == "ld" else SONAMES[owner]
            entries.append(Entry(library, _glibc_version(version), cpu, kind, name))
    return entries


def _glibc_version(version: tuple[int, ...]) -> str:
    shown = version if version[2] else version[:2]
    return "GLIBC_" + ".".join(str(part) for part in shown)


def runtime(library: Path, cpu: str) -> list[Entry]:
    """Symbols of one installed library, each at its highest version within the floor."""
    found = elf.parse(library.read_bytes())
    best: dict[str, tuple[tuple[int, ...], elf.Symbol]] = {}
    for symbol in found.exported:
        rank = _rank(symbol.version)
        if rank is not None and rank >= best.get(symbol.name, ((), symbol))[0]:
            best[symbol.name] = (rank, symbol)
    return [
        Entry(found.soname, symbol.version, cpu, symbol.kind or "function", symbol.name)
        for _, symbol in best.values()
    ]


def _rank(version: str) -> tuple[int, ...] | None:
    """Numbers of a version within the floor; None for one above it or for none."""
    if version in UNNUMBERED:
        return (0,)
    match = re.fullmatch(r"([A-Z]+)_([0-9.]+)", version)
    if not match or match[1] not in FLOOR:
        return None
    numbers = tuple(int(part) for part in match[2].split("."))
    return numbers if numbers <= FLOOR[match[1]] else None


def render(entries: list[Entry], source: str) -> str:
    """Text of a data file. What both CPUs share at one version is written once."""
    cpus: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for entry in entries:
        cpus[entry.library, entry.version, entry.kind, entry.name].append(entry.cpu)
    sections: dict[tuple[str, str, str, str], list[str]] = defaultdict(list)
    for (library, version, kind, name), found in cpus.items():
        sections[library, version, ",".join(sorted(found)), kind].append(name)
    text = [HEADER.format(source=source)]
    for section, names in sorted(sections.items()):
        text += [f"[{' '.join(section)}]\n", *(f"{name}\n" for name in sorted(names))]
    return "".join(text)


def main() -> None:
    """Read the sources and write both lists."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--abilists", type=Path, required=True)
    parser.add_argument("--runtime", action="append", required=True, metavar="CPU=DIR")
    args = parser.parse_args()
    folders = {cpu: Path(folder) for cpu, _, folder in (r.partition("=") for r in args.runtime)}
    libc = glibc(AbiLists(args.abilists.read_bytes()))
    libc += runtime(folders["x86_64"] / "libmvec.so.1", "x86_64")
    gcc = []
    for cpu in CPUS:
        for name in ("libstdc++.so.6", "libgcc_s.so.1"):
            gcc += runtime(folders[cpu] / name, cpu)
    DATA.mkdir(exist_ok=True)
    source = "Facts: zig's glibc abilists."
    (DATA / "glibc-2.28.txt").write_text(render(libc, source))
    source = "Facts: the symbol tables of GCC's libraries."
    (DATA / "gcc-8.txt").write_text(render(gcc, source))


if __name__ == "__main__":
    main()

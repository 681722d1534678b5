# SPDX-License-Identifier: Apache-2.0
"""Compare what kernforge compiles for CUDA 12 with what NVIDIA's own CUDA 12 compiled.

The package index has real builds: wheels of bitsandbytes (12.6 and 12.8 in one), torch and
NCCL. Of each is read, entry by entry of its fat binaries, what says which CUDA made it: the ELF
ABI, the toolkit and flags of a cubin, the names of its notes with NVIDIA's version of them, the
attributes of the whole file and the format of the PTX. The same is read of kernforge's build of a
kernel for each CUDA 12 and compared for every architecture that both have.

    python scripts/compare_cuda12.py -o benchmarks/results/cuda12-cubins.json
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import struct
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from elftools.elf.elffile import ELFFile

from kernforge.binary import elf
from kernforge.store.local import Store
from kernforge.system.environment import Environment
from kernforge.toolchain import front_end, resolver
from kernforge.toolchain.index.index import Index
from kernforge.toolchain.index.wheels import Wheels
from kernforge.toolchain.lockfile import LockedCompiler
from kernforge.toolchain.provision import Toolchains

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Release, project, its version and the member, for each real build.
REAL = (
    ("12.6", "bitsandbytes", "0.50.2", "bitsandbytes/libbitsandbytes_cuda126.so"),
    ("12.8", "bitsandbytes", "0.50.2", "bitsandbytes/libbitsandbytes_cuda128.so"),
    ("12.8", "torch", "2.9.1", "torch/lib/libtorch_cuda_linalg.so"),
    ("12.9", "nvidia-nccl-cu12", "2.28.9", "nvidia/nccl/lib/libnccl.so.2"),
)
ARCHS = {
    "12.6": [75, 80, 86, 89, 90],
    "12.8": [75, 80, 86, 89, 90, 100, 120],
    "12.9": [75, 80, 86, 89, 90, 100, 103, 120, 121],
}
SOURCE = """\
#include <cuda_fp16.h>
template <typename T> __global__ void scale(T* x, T by) {
  __shared__ T part[128];
  part[threadIdx.x] = x[blockIdx.x * blockDim.x + threadIdx.x];
  __syncthreads();
  x[blockIdx.x * blockDim.x + threadIdx.x] = part[threadIdx.x ^ 1] * by;
}
template __global__ void scale<float>(float*, float);
template __global__ void scale<__half>(__half*, __half);
"""
_REGION, _ENTRY = struct.Struct("<IHHQ"), struct.Struct("<HHIQIIHHIIIQQQ")
_PTX, _CUBIN = 1, 2
# Where the flags of a cubin say its architecture, by OS ABI.
_ARCH_BITS = {51: 0xFF00FF, 65: 0xFF00}
_COMPRESSED = {0x2000: "speed", 0x8000: "balance"}
_TOOL = re.compile(rb"release (\d+\.\d+), V([\d.]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """An entry of a fat binary.

    Attributes:
        kind: ``elf`` or ``ptx``.
        arch: as ``90``.
        format: version of the entry, of a cubin the bytes of its header, and the version of the PTX
            or of the cubins.
        toolkit: CUDA that made a cubin, as ``128``; empty for PTX.
        abi: ELF OS ABI and ABI version of a cubin.
        elf_flags: of a cubin, without its architecture.
        notes: names of a cubin's notes, with the first two numbers of each.
        compression: of the payload, as CUDA 13's ``--compress-mode`` calls it.
    """

    kind: str
    arch: int
    format: str
    toolkit: str = ""
    abi: str = ""
    elf_flags: str = ""
    notes: tuple[str, ...] = ()
    compression: str = ""


def entries(library: bytes) -> Iterator[Entry]:
    """What the entries of the fat binaries of a shared object say of themselves."""
    data, offset = elf.section(library, ".nv_fatbin"), 0
    while offset < len(data):
        if not any(data[offset : offset + 8]):
            offset += 8
            continue
        _, _, header, size = _REGION.unpack_from(data, offset)
        end = offset + header + size
        offset += header
        while offset < end:
            fields = _ENTRY.unpack_from(data, offset)
            kind, version, header, size, _, _, minor, major, arch = fields[:9]
            packed = next((n for bit, n in _COMPRESSED.items() if fields[11] & bit), "")
            body = data[offset + header : offset + header + size]
            form = f"{version:x} {header} {major}.{minor}"
            if kind == _PTX:  # its header has the options of the compiler, as many as there are
                form = f"{version:x} {major}.{minor}"
                yield Entry(kind="ptx", arch=arch, format=form, compression=packed)
            elif kind == _CUBIN:
                yield _cubin(body, arch, form, packed)
            offset += header + size


def _cubin(body: bytes, arch: int, form: str, packed: str) -> Entry:
    if packed:
        return Entry(kind="elf", arch=arch, format=form, compression=packed)
    file = ELFFile(io.BytesIO(body))
    notes = {s.name: s.data() for s in file.iter_sections() if s.name.startswith(".note.")}
    said = _TOOL.search(notes.get(".note.nv.tkinfo", b""))
    # Where no note says it, the version of the ELF file does.
    number = said[1].decode().replace(".", "") if said else str(file.header["e_version"])
    return Entry(
        kind="elf",
        arch=arch,
        format=form,
        toolkit=number,
        abi=f"{body[7]}.{body[8]}",
        elf_flags=f"{file.header['e_flags'] & ~_ARCH_BITS[body[7]]:x}",
        # After its header of 12 bytes and NVIDIA's name: the number of the note's format.
        notes=tuple(f"{name} {int.from_bytes(d[24:26], 'little')}" for name, d in notes.items()),
        compression=packed,
    )


def distinct(library: bytes) -> tuple[Entry, ...]:
    """The different entries of a shared object."""
    return tuple(sorted(set(entries(library)), key=str))


def differences(ours: tuple[Entry, ...], real: tuple[Entry, ...]) -> list[str]:
    """In words where entries of ours have no equal among the real ones of their architecture."""
    found = []
    for entry in ours:
        alike = [r for r in real if (r.kind, r.arch) == (entry.kind, entry.arch)]
        if alike and not any(_equal(entry, each) for each in alike):
            found.append(f"{entry} is none of {alike}")
    return found


def _equal(ours: Entry, real: Entry) -> bool:
    """Whether two entries are of one CUDA; of a compressed cubin only the entry is seen."""
    if real.kind == "elf" and real.compression:
        return ours.format == real.format
    return ours == real


class Quiet:
    """Listens to downloads and says nothing."""

    def fetching(self, what: str, total: int | None) -> Callable[[int], None]:  # noqa: ARG002
        """A download begins."""
        return lambda count: None  # noqa: ARG005

    def note(self, text: str) -> None:
        """Print what must be known."""
        print(text, file=sys.stderr)


def real_builds() -> Iterator[tuple[str, str, tuple[Entry, ...]]]:
    """CUDA release, name and entries of each real build, by range requests."""
    with tempfile.TemporaryDirectory() as place:
        wheels = Wheels(lambda: Index.from_environment(os.environ), Path(place), Quiet())
        for cuda, project, version, member in REAL:
            wheel = next(
                w
                for w in wheels.index.wheels(project)
                if str(w.version) == version and "x86_64" in w.file and "manylinux" in w.file
            )
            ((_, data),) = wheels.parts(wheel.file, wheel.sha256).fetch([member])
            yield cuda, f"{wheel.file}: {member}", distinct(data)


def toolkit(cuda: str) -> Path:
    """Directory of kernforge's toolkit for a CUDA, from the user's own store and indexes."""
    environment = Environment.read()
    store = Store(environment.home / "store")
    wheels = Wheels(Index.lazily(environment.variables), store.root / "downloads", Quiet())
    unknown = LockedCompiler(identity="", target="")
    needs = resolver.Needs(cuda=frozenset({cuda}), torch=frozenset())
    lock = resolver.make(needs, wheels, cpu="x86_64", compiler=unknown)
    return Toolchains(store, wheels).toolkit(lock.cuda[cuda])


def own_build(cuda: str, archs: list[int]) -> tuple[Entry, ...]:
    """Entries of an object that kernforge's toolkit for a CUDA compiles for some architectures."""
    with tempfile.TemporaryDirectory() as place:
        source, built = Path(place) / "scale.cu", Path(place) / "scale.o"
        source.write_text(SOURCE)
        codes = [f"-gencode=arch=compute_{a},code=[sm_{a},compute_{a}]" for a in archs]
        flags = ("-c", "-O3", "-std=c++17", *front_end.usual_flags(()))
        nvcc = toolkit(cuda) / "bin" / "nvcc"
        subprocess.run([nvcc, *flags, *codes, source, "-o", built], check=True)
        return distinct(built.read_bytes())


def main() -> None:
    """Compare and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    real = list(real_builds())
    rows = []
    for cuda in map(str, front_end.TOOLKITS):
        ours = own_build(cuda, ARCHS[cuda])
        beside = [(name, entries) for release, name, entries in real if release == cuda]
        known = tuple(entry for _, entries in beside for entry in entries)
        rows.append(
            {
                "cuda": cuda,
                "ours": [asdict(entry) for entry in ours],
                "real": {name: [asdict(entry) for entry in found] for name, found in beside},
                "compared": [
                    f"{entry.kind} {entry.arch}"
                    for entry in ours
                    if any((r.kind, r.arch) == (entry.kind, entry.arch) for r in known)
                ],
                "differences": differences(ours, known),
            }
        )
        print(cuda, rows[-1]["compared"], *rows[-1]["differences"], sep="\n", flush=True)
    options.out.write_text(json.dumps({"cuda12": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Rules for the shared object of a variant: what it asks of the machine that loads it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from importlib import resources

from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2, in_order
from kernforge.binary import abi_floor
from kernforge.binary.elf import Elf, Symbol
from kernforge.binary.fatbin import Architectures
from kernforge.binary.symbols import demangled
from kernforge.check.finding import Finding, finding
from kernforge.system.tables import first_names

_PTX = "+PTX"
# Nested names (Itanium ABI, chapter 5.1.3) in torch's namespaces; two of them are the stable ABI.
_NESTED = r"_Z(?:T[VTISWH]|GV|GR|Th?n?\d+_)?N[rVK]*[RO]?"
_TORCH_NAME = re.compile(_NESTED + r"(?:3c10|2at|6caffe2|5torch(?!6stable|10headeronly))")
_TORCH_OWNED = re.compile(_NESTED + r"(?:3c10|2at|6caffe2|5torch)")
DEPENDENCY_HINTS = {
    "libcudart": "link the CUDA runtime statically (-cudart=static): torch may bring another major",
    "libcuda": "machines without a driver cannot load it: ask cudaGetDriverEntryPoint instead",
    "libpython": "an extension module takes Python's symbols from the process: do not link it",
    "libtorch_python": "it is not part of any stable ABI: use TORCH_LIBRARY in place of pybind11",
}


def manylinux(
    elf: Elf, *, satisfied: str, allowed: Mapping[str, Collection[str]], where: str
) -> Iterator[Finding]:
    """Symbol versions above the ABI floor.

    Args:
        satisfied: the policy that auditwheel finds for it; empty when it is the floor or older.
        allowed: versions of the floor's policy by prefix, as in ``{"GLIBC": {"2.17", ...}}``.
        where: its path, for the findings.
    """
    if not satisfied:
        return
    above: dict[str, list[str]] = defaultdict(list)
    for symbol in elf.undefined:
        prefix, _, version = symbol.version.partition("_")
        if symbol.version and version not in allowed.get(prefix, (version,)):
            above[symbol.version].append(symbol.name)
    listing = "; ".join(
        f"{version}: {first_names(names)}" for version, names in sorted(above.items())
    )
    yield finding(
        "manylinux",
        where,
        f"it is {satisfied} and not {abi_floor.POLICY}: it does not load on older Linux "
        f"distributions ({listing})",
        "link with kernforge build, which keeps to the floor",
    )


def unresolved(elf: Elf, *, where: str, stable: bool = False) -> Iterator[Finding]:
    """Undefined symbols that no library of the floor, Python or torch is known to define.

    Args:
        where: its path, for the findings.
        stable: whether torch gives it C names alone, so that a C++ name is the project's own.
    """
    if stable and (own := [s.name for s in elf.undefined if is_own(s)]):
        yield finding(
            "unresolved",
            where,
            f"{first_names([demangled(name) for name in own])} is declared and used, and no source "
            "defines it: importing it fails with an undefined symbol",
            "name the source that defines it in build.toml's src, for this backend too; namespace "
            "and arguments are part of a name",
        )
    missing = [s.name for s in abi_floor.unresolvable(elf.undefined) if not s.version]
    if missing:
        yield finding(
            "unresolved",
            where,
            f"nothing on a {abi_floor.POLICY} machine defines {first_names(missing)}: "
            "importing it fails with an undefined symbol",
            "add the source or the static library that defines it; functions newer than "
            "glibc 2.28 cannot be used",
        )


def is_own(symbol: Symbol) -> bool:
    """Whether an undefined symbol is a C++ name of no library that is known."""
    known = symbol.version or symbol.weak or abi_floor.unresolvable([symbol])
    return symbol.name.startswith("_Z") and not known and not _TORCH_OWNED.match(symbol.name)


def dependencies(
    elf: Elf, *, backend: str, where: str, framework: str = "torch"
) -> Iterator[Finding]:
    """Search paths, and loaded libraries that are neither the system's nor its framework's."""
    tvm_ffi = framework == "tvm-ffi"
    of_framework = abi_floor.TVM_FFI if tvm_ffi else abi_floor.torch_sonames(backend)
    allowed = {*abi_floor.system_sonames(), *of_framework}
    for soname in elf.needed:
        if soname not in allowed:
            yield finding(
                "dependencies",
                where,
                f"it depends on {soname}, which a machine with "
                f"{'tvm-ffi' if tvm_ffi else 'torch'} need not have",
                DEPENDENCY_HINTS.get(
                    soname.partition(".")[0], f"link {soname.partition('.')[0]} statically"
                ),
            )
    if elf.rpath:
        yield finding(
            "dependencies",
            where,
            f"it has a library search path: {':'.join(elf.rpath)}",
            "link without -rpath: the path is the build machine's",
        )


def machine(elf: Elf, variant: Variant, *, where: str) -> Iterator[Finding]:
    """The CPU that it was compiled for."""
    if elf.machine != variant.cpu:
        yield finding(
            "machine",
            where,
            f"it is compiled for {elf.machine}, the variant is for {variant.cpu}",
            "build the variant with a compiler for its CPU",
        )


def torch_stable_abi(
    undefined: Iterable[Symbol], *, target: Version2, where: str
) -> Iterator[Finding]:
    """Torch symbols that torch may change, or that the oldest supported torch lacks.

    Args:
        undefined: the shared object's undefined symbols.
        target: the torch that the variant promises to load in, and every newer one.
        where: its path, for the findings.
    """
    names = [symbol.name for symbol in undefined]
    unstable = [name for name in names if _TORCH_NAME.match(name)]
    if unstable:
        yield finding(
            "torch-stable-abi",
            where,
            f"it uses torch's C++ ABI, which changes with every torch: {first_names(unstable)}",
            "include only torch/csrc/stable and torch/headeronly, or build for one torch "
            "(remove stable-abi from build.toml)",
        )
    added = _shim_versions()
    newer = [name for name in names if added.get(name, target) > target]
    if newer:
        version = max(added[name] for name in newer)
        yield finding(
            "torch-stable-abi",
            where,
            f"it needs functions newer than torch {target}: "
            + first_names([f"{name} ({added[name]})" for name in newer]),
            f'compile with TORCH_TARGET_VERSION for {target}, or set stable-abi = "{version}"',
        )


def fat_binary(
    found: Architectures, archs: Collection[str] | None, *, backend: str, where: str
) -> Iterator[Finding]:
    """Device code and what the metadata says of it; loaders choose by the metadata alone.

    Args:
        archs: ``backend.archs`` of the metadata.
        backend: the metadata's backend.
        where: its path, for the findings.
    """
    promised = {arch.removesuffix(_PTX) for arch in archs or ()} if backend == "cuda" else set()
    promised_ptx = {arch.removesuffix(_PTX) for arch in archs or () if arch.endswith(_PTX)}
    differences = [
        *_difference("machine code", set(found.cubins), promised),
        *_difference("PTX", set(found.ptx), promised_ptx if backend == "cuda" else set()),
    ]
    if differences:
        yield finding(
            "archs",
            where,
            f"its GPU code and metadata.json's backend.archs disagree: {'; '.join(differences)}",
            "build the variant again: a GPU would be refused, or meet no code for it",
        )


def unique_symbols(elf: Elf, *, where: str) -> Iterator[Finding]:
    """Symbols that the dynamic linker merges over the whole process."""
    unique = [symbol.name for symbol in elf.exported if symbol.unique]
    if unique:
        yield finding(
            "unique",
            where,
            f"two versions of the kernel in one process would share {first_names(unique)}, "
            "and it can never be unloaded",
            "compile with -fno-gnu-unique (nvcc: -Xcompiler -fno-gnu-unique)",
            "warning",
        )


def _difference(what: str, found: set[str], promised: set[str]) -> Iterator[str]:
    if extra := in_order(found - promised):
        yield f"{what} for {', '.join(extra)} is not listed"
    if missing := in_order(promised - found):
        yield f"{what} for {', '.join(missing)} is missing"


@cache
def _shim_versions() -> dict[str, Version2]:
    """The torch that brought each function of its stable C interface."""
    data = resources.files("kernforge") / "data" / "torch-shim.txt"
    lines = (line.split() for line in data.read_text(encoding="utf-8").splitlines())
    return {line[0]: Version2.parse(line[1]) for line in lines if line[0] != "#"}

# SPDX-License-Identifier: Apache-2.0
"""Rules for the shared objects of a variant: their requirements on the machine that loads them.

``RULES`` is the table of them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, TypeAlias

from kernforge.artifact.metadata import Metadata
from kernforge.artifact.variant import Variant
from kernforge.artifact.version import Version2, in_order
from kernforge.binary import abi_floor
from kernforge.binary.elf import Elf, Symbol
from kernforge.binary.fatbin import Architectures
from kernforge.binary.symbols import demangled
from kernforge.check.finding import Finding, Problem
from kernforge.system.tables import first_names

if TYPE_CHECKING:
    from auditwheel.policy import Policy, WheelPolicies

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Library:
    """A shared object, its device code, and the variant that it belongs to."""

    elf: Elf
    code: Architectures
    variant: Variant
    metadata: Metadata


Problems: TypeAlias = Iterator[Problem]


def check_library(library: Library, *, where: str) -> Iterator[Finding]:
    """The findings of every rule for a library."""
    for rule, problems in RULES.items():
        for message, hint in problems(library):
            yield Finding(rule, where, message, hint, "warning" if rule == "unique" else "error")


def machine(library: Library) -> Problems:
    """Refuse a library for another CPU than the variant's."""
    compiled, variant = library.elf.machine, library.variant
    if not variant.is_noarch and compiled != variant.cpu:
        yield Problem(
            f"it is compiled for {compiled}, the variant is for {variant.cpu}",
            "build the variant with a compiler for its CPU",
        )


def manylinux(library: Library) -> Problems:
    """Refuse symbol versions above the ABI floor."""
    elf = library.elf
    if elf.machine not in abi_floor.CPUS:
        return
    policies, satisfied = manylinux_policy(elf)
    floor = policies.get_policy_by_name(f"{abi_floor.POLICY}_{elf.machine}")
    if satisfied.priority >= floor.priority:  # the newer a policy is, the lower its priority
        return
    above: dict[str, list[str]] = defaultdict(list)
    for symbol in elf.undefined:
        prefix, _, version = symbol.version.partition("_")
        if symbol.version and version not in floor.symbol_versions.get(prefix, (version,)):
            above[symbol.version].append(symbol.name)
    listing = "; ".join(
        f"{version}: {first_names(names)}" for version, names in sorted(above.items())
    )
    yield Problem(
        f"it is {satisfied.name} and not {abi_floor.POLICY}: it does not load on older Linux "
        f"distributions ({listing})",
        "link with kernforge build, which keeps to the floor",
    )


def manylinux_policy(elf: Elf) -> tuple[WheelPolicies, Policy]:
    """The policies of auditwheel for a CPU, and the oldest that a library's symbols satisfy.

    The libraries of torch that it depends on do not count: the process that imports it has them.
    """
    # Late: the import takes a while, and only this needs it.
    from auditwheel.architecture import Architecture  # noqa: PLC0415
    from auditwheel.libc import Libc  # noqa: PLC0415
    from auditwheel.policy import WheelPolicies  # noqa: PLC0415

    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture(elf.machine))
    versions: dict[str, set[str]] = {}
    for symbol in elf.undefined:
        if symbol.version:
            versions.setdefault(symbol.library, set()).add(symbol.version)
    return policies, policies.versioned_symbols_policy(versions)


def wheel_platform(
    elf: Elf, sonames: Collection[str] = (), symbols: Collection[str] = ()
) -> tuple[str, str]:
    """The oldest platform tag that is true of a library, and what it lacks there.

    It is plain ``linux`` for one that needs what no manylinux machine with torch has.

    Args:
        sonames: libraries in the same wheel.
        symbols: what they define.
    """
    policies, satisfied = manylinux_policy(elf)
    beyond = [s for s in elf.needed if s not in sonames and not abi_floor.is_present(s)]
    lacking = ""
    if others := [soname for soname in beyond if soname not in satisfied.whitelist]:
        lacking = (
            f"it needs {first_names(others)} of the machine (put it into the wheel, or link it "
            "statically)"
        )
    elif not beyond:  # what other libraries of the policy define is not known
        cuda = any("cuda" in soname for soname in elf.needed)
        names = {s.name for s in abi_floor.unresolvable(elf.undefined) if not s.version}
        own = {name for name in names if cuda and abi_floor.is_of_cuda(name)}
        if missing := names.difference(symbols, own):
            lacking = f"it uses {first_names(missing)}, which {abi_floor.POLICY} does not have"
    return policies.linux.name if lacking else satisfied.name, lacking


def unresolved(library: Library) -> Problems:
    """Refuse undefined symbols of no library of the floor, Python or torch."""
    undefined = library.elf.undefined
    # The stable ABI has C names alone, so a C++ name is the project's own.
    stable = library.variant.framework == "torch-stable-abi"
    if stable and (own := [demangled(s.name) for s in undefined if is_own(s)]):
        yield Problem(
            f"{first_names(own)} is declared and used, and no source defines it: importing it "
            "fails with an undefined symbol",
            "name the source that defines it in build.toml's src, for this backend too; namespace "
            "and arguments are part of a name",
        )
    missing = [s.name for s in abi_floor.unresolvable(undefined) if not s.version]
    if missing:
        yield Problem(
            f"nothing on a {abi_floor.POLICY} machine defines {first_names(missing)}: "
            "importing it fails with an undefined symbol",
            "add the source or the static library that defines it; functions newer than "
            "glibc 2.28 cannot be used",
        )


def is_own(symbol: Symbol) -> bool:
    """Whether an undefined symbol is a C++ name of no known library."""
    known = symbol.version or symbol.weak or abi_floor.unresolvable([symbol])
    return symbol.name.startswith("_Z") and not known and not _TORCH_OWNED.match(symbol.name)


def dependencies(library: Library) -> Problems:
    """Refuse search paths, and libraries that neither the system nor the framework has."""
    framework, allowed = "torch", abi_floor.torch_sonames(library.metadata.backend)
    if library.variant.framework == "tvm-ffi":
        framework, allowed = "tvm-ffi", abi_floor.TVM_FFI
    for soname in library.elf.needed:
        if soname not in {*abi_floor.system_sonames(), *allowed}:
            name = soname.partition(".")[0]
            yield Problem(
                f"it depends on {soname}, which a machine with {framework} need not have",
                DEPENDENCY_HINTS.get(name, f"link {name} statically"),
            )
    if library.elf.rpath:
        yield Problem(
            f"it has a library search path: {':'.join(library.elf.rpath)}",
            "link without -rpath: the path is the build machine's",
        )


def torch_stable_abi(library: Library) -> Problems:
    """Refuse symbols that torch may change, or that the oldest supported torch lacks."""
    target = library.variant.version
    if library.variant.framework != "torch-stable-abi" or target is None:
        return
    names = [symbol.name for symbol in library.elf.undefined]
    unstable = [name for name in names if _TORCH_NAME.match(name)]
    if unstable:
        yield Problem(
            f"it uses torch's C++ ABI, which changes with every torch: {first_names(unstable)}",
            "include only torch/csrc/stable and torch/headeronly, or build for one torch "
            "(remove stable-abi from build.toml)",
        )
    added = _shim_versions()
    newer = [name for name in names if added.get(name, target) > target]
    if newer:
        version = max(added[name] for name in newer)
        yield Problem(
            f"it needs functions newer than torch {target}: "
            + first_names([f"{name} ({added[name]})" for name in newer]),
            f'compile with TORCH_TARGET_VERSION for {target}, or set stable-abi = "{version}"',
        )


def device_code(library: Library) -> Problems:
    """Refuse device code that differs from the metadata, by which loaders choose."""
    archs = library.metadata.archs or () if library.metadata.backend == "cuda" else ()
    promised = {arch.removesuffix(_PTX) for arch in archs}
    promised_ptx = {arch.removesuffix(_PTX) for arch in archs if arch.endswith(_PTX)}
    differences = [
        *_differences("machine code", set(library.code.cubins), promised),
        *_differences("PTX", set(library.code.ptx), promised_ptx),
    ]
    if differences:
        yield Problem(
            f"its GPU code and metadata.json's backend.archs disagree: {'; '.join(differences)}",
            "build the variant again: a GPU would be refused, or meet no code for it",
        )


def unique_symbols(library: Library) -> Problems:
    """Warn of symbols that the dynamic linker merges over the whole process."""
    unique = [symbol.name for symbol in library.elf.exported if symbol.unique]
    if unique:
        yield Problem(
            f"two versions of the kernel in one process would share {first_names(unique)}, "
            "and it can never be unloaded",
            "compile with -fno-gnu-unique (nvcc: -Xcompiler -fno-gnu-unique)",
        )


RULES: dict[str, Callable[[Library], Problems]] = {
    "machine": machine,
    "manylinux": manylinux,
    "unresolved": unresolved,
    "dependencies": dependencies,
    "torch-stable-abi": torch_stable_abi,
    "archs": device_code,
    "unique": unique_symbols,
}


def _differences(what: str, actual: set[str], promised: set[str]) -> Iterator[str]:
    if extra := in_order(actual - promised):
        yield f"{what} for {', '.join(extra)} is not listed"
    if missing := in_order(promised - actual):
        yield f"{what} for {', '.join(missing)} is missing"


@cache
def _shim_versions() -> dict[str, Version2]:
    """The torch that introduced each function of its stable C interface."""
    data = resources.files("kernforge") / "data" / "torch-shim.txt"
    lines = (line.split() for line in data.read_text(encoding="utf-8").splitlines())
    return {line[0]: Version2.parse(line[1]) for line in lines if line[0] != "#"}

# SPDX-License-Identifier: Apache-2.0
"""Rules for a library of a macOS variant: what it asks of the Mac that loads it.

The oldest macOS is that of ``kernel-builder check-abi``.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kernforge.artifact.version import Version2
from kernforge.binary import abi_floor
from kernforge.binary.symbols import demangled
from kernforge.check import abi_rules
from kernforge.check.finding import finding
from kernforge.system.tables import first_names

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kernforge.artifact.variant import Variant
    from kernforge.binary.macho import MachO
    from kernforge.check.finding import Finding

MACOS = Version2(15, 0)
"""A build must load on this macOS."""

_SYSTEM = ("/usr/lib/", "/System/Library/")
# The libraries of a torch wheel for macOS.
_TORCH = {f"@rpath/lib{name}.dylib" for name in ("c10", "torch", "torch_cpu", "omp")}
_TVM_FFI = {"@rpath/libtvm_ffi.dylib"}
_HINTS = {"libc++": "link macOS's own, /usr/lib/libc++.1.dylib, as Apple's clang does"}


def for_cpu(
    slices: Sequence[MachO], variant: Variant, *, where: str
) -> tuple[MachO | None, tuple[Finding, ...]]:
    """The code for the variant's CPU, or what is wrong if there is none that Python can load."""
    found = {each.cpu: each for each in slices}
    chosen = slices[0] if variant.is_noarch and slices else found.get(variant.cpu)
    if chosen is None:
        message = f"it is compiled for {', '.join(found)}, the variant is for {variant.cpu}"
        hint = "build the variant with -arch for its CPU"
        return None, (finding("machine", where, message, hint),)
    if chosen.kind not in {"dylib", "bundle"}:
        message = "it is neither a bundle nor a dynamic library: Python cannot load it"
        hint = "link it with -bundle, as setuptools and CMake's MODULE do"
        return None, (finding("machine", where, message, hint),)
    return chosen, ()


def oldest_macos(library: MachO, *, where: str) -> Iterator[Finding]:
    """The oldest macOS that it says to load on."""
    hint = f"compile and link with MACOSX_DEPLOYMENT_TARGET={MACOS}"
    if library.macos is None:
        yield finding("macos", where, "it does not say which macOS it needs", hint)
    elif library.macos > MACOS:
        message = f"it needs macOS {Version2(*library.macos)}: it does not load on older ones from {MACOS} on"
        yield finding("macos", where, message, hint)


def signature(library: MachO, *, where: str) -> Iterator[Finding]:
    """Code without a signature, which macOS on ARM does not run."""
    if library.cpu == "aarch64" and not library.signed:
        message = "it has no code signature: macOS on Apple silicon ends a process that loads it"
        hint = "sign it after the last change (strip, install_name_tool): codesign --sign - FILE"
        yield finding("signature", where, message, hint)


def dependencies(
    library: MachO, *, framework: str, path: str, present: Collection[str], where: str
) -> Iterator[Finding]:
    """Libraries that a Mac with the framework need not have, and search paths of another machine.

    Args:
        framework: of the variant.
        path: of the library in the variant.
        present: paths of all files of the variant.
        where: its path, for the findings.
    """
    allowed = _TVM_FFI if framework == "tvm-ffi" else _TORCH
    for name in library.loads:
        own = name.removeprefix("@loader_path/")
        inside = own != name and posixpath.normpath(posixpath.join(posixpath.dirname(path), own))
        if name.startswith(_SYSTEM) or name in allowed or inside in present:
            continue
        stem = posixpath.basename(name).partition(".")[0]
        of_whom = "tvm-ffi" if framework == "tvm-ffi" else "torch"
        yield finding(
            "dependencies",
            where,
            f"it depends on {name}, which a Mac with {of_whom} need not have",
            {**abi_rules.DEPENDENCY_HINTS, **_HINTS}.get(stem, f"link {stem} statically"),
        )
    foreign = [name for name in library.rpaths if not name.startswith("@loader_path")]
    if foreign:
        message = f"it has a library search path: {':'.join(foreign)}"
        hint = "remove it: install_name_tool -delete_rpath PATH FILE, then codesign --sign - FILE"
        yield finding("dependencies", where, message, hint, "warning")


def unresolved(library: MachO, *, where: str) -> Iterator[Finding]:
    """Symbols that are looked up in the whole process, and that neither Python nor torch has.

    The linker binds every other symbol to the library that has it (two-level namespace).
    """
    flat = [s for s in library.undefined if not s.library and not s.weak]
    unknown = {s.name for s in abi_floor.unresolvable(flat)}
    own = [s.name for s in flat if abi_rules.is_own(s)]
    hint = "name the source or the static library that defines it in build.toml's src"
    if own:
        names = first_names([demangled(name) for name in own])
        message = f"{names} is declared and used, and no source defines it: importing it fails"
        yield finding("unresolved", where, message, hint)
    if unknown:
        message = (
            f"neither Python nor torch has {first_names(sorted(unknown))}: importing it fails unless "
            "another library of the process does"
        )
        yield finding("unresolved", where, message, hint, "warning")

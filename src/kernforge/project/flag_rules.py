# SPDX-License-Identifier: Apache-2.0
"""Compiler flags that start programs, load code into the compiler, or replace its parts.

A sandbox keeps what they start away from the machine, but not from the build: it could make
anything of the sources. So a project that is not the user's own may not use them. Sources: the
manuals of GCC ("Overall Options", "Directory Options", "Developer Options") and of nvcc ("NVCC
Command Options").
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from kernforge.errors import ManifestError
from kernforge.project import units

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernforge.manifest.document import Manifest

_PROGRAMS = re.compile(
    r"@.*"  # more flags from a file
    r"|--?(?:"
    r"wrapper|f?plugin|iplugindir|fpass-plugin|load|specs|B|prefix|fuse-ld|foffload|T"
    r"|sysroot|isysroot|gcc-toolchain|gcc-install-dir|config|cc1|Xclang|mllvm|ld-path"
    r"|ccbin|compiler-bindir|archiver-binary|arbin|optf|options-file|run|run-args"
    r"|ldir|libdevice-directory|target-dir|target-directory|idp|use-local-env"
    r"|Xarchive|archive-options|Xfatbin|fatbin-options|Xnvlink|nvlink-options"
    r")(?:[=,/. ].*)?"
    r"|-[BT].*|-f(?:plugin|pass-plugin|use-ld|offload).*|-specs.*|-wrapper.*"
    r"|-optf.*|-ccbin.*|-Xclang.*|-mllvm.*|--?sysroot.*"
)
# What hands other flags on: they are judged as if they stood by themselves.
_HANDS_ON = (
    *("-Xcompiler", "--compiler-options", "-Xptxas", "--ptxas-options"),
    *("-Xlinker", "--linker-options", "-Xassembler", "-Xpreprocessor"),
    *("--for-linker", "--for-assembler"),
)
_PASSES = ("-Wl,", "-Wa,", "-Wp,")
# Of fatbinary's options, those that choose how it compresses; others name programs and files.
_TO_FATBINARY = ("-Xfatbin", "--fatbin-options", "-fatbin-options")
_COMPRESSION = re.compile(r"--?compress(?:-all|=(?:true|false)|-mode=\w+)")


def refuse_programs(manifest: Manifest) -> None:
    """Refuse the flags of a stranger's project that start programs or load code.

    Raises:
        ManifestError: it has such flags; the message names each with its source.
    """
    found = {
        f"{unit.path}: {flag}"
        for backend in manifest.general.backends
        for unit in units.units(manifest, backend)
        for flag in starts_programs((*unit.cxx_flags, *unit.cuda_flags))
    }
    if found:
        raise ManifestError(
            "these flags start a program or load code into the compiler:\n  "
            + "\n  ".join(sorted(found)),
            hint="the project is built as a stranger's; if you trust its authors as yourself, build "
            "it without --untrusted, or set KERNFORGE_BUILD_TRUSTED=1 for get_kernel(build=True)",
        )


def starts_programs(flags: Sequence[str]) -> tuple[str, ...]:
    """Those of a compiler's flags that start a program, load code or name another compiler part."""
    return tuple(flag for flag in _judged(flags) if _PROGRAMS.fullmatch(flag))


def _judged(flags: Sequence[str]) -> Iterator[str]:
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        if name in {*_HANDS_ON, *_TO_FATBINARY}:
            given = value if equals else next(rest, "")
            words = [word.strip("\"'") for word in re.split(r"[,\s]+", given) if word]
            if name in _HANDS_ON:
                yield from _judged(words)
            elif not words or not all(map(_COMPRESSION.fullmatch, words)):
                yield f"{name} {given}"
        elif flag.startswith(_PASSES):
            yield from flag.split(",")[1:]
        else:
            yield flag.strip("\"'").strip()

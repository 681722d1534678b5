# SPDX-License-Identifier: Apache-2.0
"""Flags of clang where it compiles CUDA in the place of nvcc.

``build.toml`` speaks nvcc's language; here it is said in clang's. What clang does unasked is left
out, what only quiets nvcc's own diagnostics is left out, and what has no counterpart is refused by
name rather than lost. The counterparts were found by comparing the PTX of both compilers: clang,
for one, takes square roots from libdevice approximately unless a flag says otherwise.
"""

from __future__ import annotations

import re
from importlib import resources
from typing import TYPE_CHECKING

from kernforge.build.plan import flags
from kernforge.errors import ManifestError
from kernforge.system import digest
from kernforge.toolchain import tree_names

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kernforge.artifact.version import Version2
    from kernforge.project.targets import Target
    from kernforge.toolchain.cuda_arch import Arch

HOST_HEADER = "nvcc_host.h"
"""File that every unit begins with: what nvcc declares unasked."""

_DEVICE, _HOST, _PTXAS, _FATBINARY = (
    *("-Xarch_device", "-Xarch_host"),
    *("-Xcuda-ptxas", "-Xcuda-fatbinary"),
)
_PRECISE_SQRT = (_DEVICE, "-mllvm=-nvvm-reflect-add=__CUDA_PREC_SQRT=1")
_FTZ = ("-fgpu-flush-denormals-to-zero",)
_FAST_DIVISION = (_DEVICE, "-mllvm=-nvptx-prec-divf32=0")
_FAST_SQRT = (_DEVICE, "-mllvm=-nvptx-prec-sqrtf32=0")
_FAST_FUNCTIONS = (_DEVICE, "-fgpu-approx-transcendentals")
_NO_FMAD = (_DEVICE, "-ffp-contract=off")
_LINES = (_DEVICE, "-gline-tables-only")
_NOTHING: tuple[str, ...] = ()
# Options of nvcc without a value -> flags of clang; nvcc knows most by two names.
_WORDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("--use_fast_math", "-use_fast_math"),
        (*_FTZ, *_FAST_FUNCTIONS, *_FAST_DIVISION, *_FAST_SQRT),
    ),
    **dict.fromkeys(("-lineinfo", "--generate-line-info", "-generate-line-info"), _LINES),
    **dict.fromkeys(("-g", "--debug"), (_HOST, "-g")),
    **dict.fromkeys(("-G", "--device-debug"), ("--cuda-noopt-device-debug",)),
    **dict.fromkeys(("-res-usage", "--resource-usage", "-resource-usage"), (_PTXAS, "-v")),
    **dict.fromkeys(
        (
            *("--expt-relaxed-constexpr", "-expt-relaxed-constexpr"),
            *("--expt-extended-lambda", "-expt-extended-lambda"),
            *("--extended-lambda", "-extended-lambda", "--extra-device-vectorization"),
            *("--source-in-ptx", "-src-in-ptx", "--restrict", "-restrict", "--keep", "-keep"),
            *("--disable-warnings", "-disable-warnings", "-w", "-Wno-deprecated-gpu-targets"),
        ),
        _NOTHING,
    ),
}
# Words with a value that say nothing to clang.
_NEEDLESS = (
    *("-Xcudafe", "--cudafe-options", "--threads", "-t", "--keep-dir"),
    *("--diag-suppress", "-diag-suppress", "--diag_suppress", "-diag_suppress"),
    *("--static-global-template-stub", "-static-global-template-stub"),
)
# Words whose value is a list, each part of which follows this word of clang's.
_HANDED_ON = {
    **dict.fromkeys(("--ptxas-options", "-Xptxas"), _PTXAS),
    **dict.fromkeys(("--fatbin-options", "-Xfatbin"), _FATBINARY),
}
_FOR_HOST = ("--compiler-options", "-Xcompiler")
_REGISTERS = ("--maxrregcount", "-maxrregcount")
_SAME = (
    *("--std", "-std", "--ftemplate-backtrace-limit", "-ftemplate-backtrace-limit"),
    *("--ftemplate-depth", "-ftemplate-depth"),
)


def _truth(
    name: str, yes: tuple[str, ...], no: tuple[str, ...]
) -> dict[str, dict[str, tuple[str, ...]]]:
    values = {"true": yes, "1": yes, "false": no, "0": no}
    return {f"--{name}": values, f"-{name}": values}


# Words whose value is a truth.
_SWITCHES = {
    **_truth("ftz", _FTZ, _NOTHING),
    **_truth("prec-div", _NOTHING, _FAST_DIVISION),
    **_truth("prec-sqrt", _NOTHING, _FAST_SQRT),
    **_truth("fmad", _NOTHING, _NO_FMAD),
}
_VALUED = {*_NEEDLESS, *_HANDED_ON, *_FOR_HOST, *_REGISTERS, *_SAME, *_SWITCHES}
# What both understand alike: joined to its value, and apart from it.
_ALIKE = re.compile(
    r"-[DUIO].+|-O|-W(?!no-deprecated-gpu|a,|l,|p,).+"
    r"|(-isystem|-iquote|-idirafter|-include|-imacros).+"
)
_APART = ("-isystem", "-iquote", "-idirafter", "-include", "-imacros", "-D", "-U", "-I")


def clang(
    target: Target, cuda: Version2, standard: str, archs: Sequence[Arch], path: str
) -> tuple[str, ...]:
    """Program and flags of a CUDA unit, without its own.

    Args:
        standard: of C++, as ``"20"``.
        path: of the unit in its project, which names its internal symbols.

    Raises:
        ManifestError: clang cannot compile for one of the architectures.
    """
    root = tree_names.cuda_root(cuda)
    return (
        *(tree_names.tree(root, tree_names.CLANG), "clang", "-c", "-x", "cuda"),
        f"--target={target.variant.cpu}-unknown-linux-gnu",
        f"--gcc-install-dir={tree_names.GCC}",
        f"--cuda-path={tree_names.tree(root)}",
        f"-resource-dir={tree_names.tree(root, tree_names.CLANG_RESOURCES)}",
        f"-std=c++{standard}",
        *("-O3", "-DNDEBUG", "-fPIC", f"-cuid={digest.sha256(path)[:16]}"),
        *(() if target.variant.framework == "tvm-ffi" else flags.NVCC_DEFINES),
        # A loop that nvcc unrolls and clang does not is not a mistake of the author.
        "-Wno-pass-failed",
        *_architectures(archs),
        # CUDA 13's fatbinary packs PTX in another way than CUDA 12's, unless a flag says otherwise.
        *(_FATBINARY, "--compress-mode=speed"),
        *("-include", HOST_HEADER, "-idirafter", tree_names.tree(root, tree_names.CLANG_EMPTY)),
    )


def host_header() -> str:
    """Text of the file that every unit begins with."""
    return resources.files("kernforge").joinpath(f"data/{HOST_HEADER}").read_text()


def _architectures(archs: Sequence[Arch]) -> Iterator[str]:
    family = [str(arch) for arch in archs if arch.suffix == "f"]
    if family:
        raise ManifestError(
            f"clang does not compile for a family of GPUs: {', '.join(family)}",
            hint="name single architectures in cuda-capabilities, as 10.0a, or use nvcc",
        )
    yield "--no-cuda-include-ptx=all"
    for arch in archs:
        name = f"sm_{arch.major}{arch.minor}{arch.suffix}"
        yield f"--cuda-gpu-arch={name}"
        if arch.ptx:
            yield f"--cuda-include-ptx={name}"


def translate(nvcc: Sequence[str], source: str) -> tuple[str, ...]:
    """The flags that a manifest gives to nvcc for a source, for clang.

    Raises:
        ManifestError: clang has no counterpart of one.
    """
    words = iter(nvcc)
    found = [part for word in words for part in _one(word, words, source)]
    if _FAST_SQRT[1] not in found:
        found += _PRECISE_SQRT
    return tuple(found)


def _one(word: str, rest: Iterator[str], source: str) -> tuple[str, ...]:
    """Flags of clang for an option of nvcc; takes the option's value from the rest if it is there."""
    if word in _WORDS:
        return _WORDS[word]
    if word in _APART:
        return (word, next(rest, ""))
    name, equals, value = word.partition("=")
    if name in _VALUED:
        flags = _valued(name, value if equals else next(rest, ""))
    else:
        flags = (word,) if _ALIKE.fullmatch(word) else None
    if flags is None:
        raise _refused(word, source)
    return flags


def _valued(name: str, value: str) -> tuple[str, ...] | None:
    """Flags of clang for an option with a value; None if there is no counterpart."""
    if name in _HANDED_ON:
        return tuple(word for part in value.split(",") for word in (_HANDED_ON[name], part))
    if name in _FOR_HOST:
        # Position independence is asked for already, and clang makes no unique symbols.
        wanted = [word for word in value.split(",") if word not in {"-fPIC", "-fno-gnu-unique", ""}]
        return tuple(part for word in wanted for part in (_HOST, word))
    if name in _SAME:
        return (f"-{name.lstrip('-')}={value}",)
    if name in _REGISTERS:
        return (_PTXAS, f"--maxrregcount={value}")
    if name in _SWITCHES:
        return _SWITCHES[name].get(value)
    return ()


def _refused(word: str, source: str) -> ManifestError:
    return ManifestError(
        f"build.toml: {source} is compiled with {word!r}, of which clang has no counterpart",
        hint="take it out of cuda-flags, or compile this CUDA with nvcc: a toolkit (--cuda-home) "
        "or NVIDIA's redistributables (--cuda-redist)",
    )

# SPDX-License-Identifier: Apache-2.0
"""Which CUDA units are the same without the flag for extended lambdas.

A project's units are compiled with it, as kernel-builder and torch do, and nvcc then reads
``<functional>`` before the source: for a small kernel in C++20 that is up to half of the time of its
stages for the host. A unit that has no such lambda, and none of whose names could mean something
else because of a header of the C++ library, has the same object without the flag: byte for byte, as
a test shows for every kernel here. A unit that has such a lambda, or takes a name from that header,
does not compile without.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from types import MappingProxyType

from kernforge.source import extension_source

_FLAG = re.compile(r"-?-(?:expt-)?extended-lambda")
# Flags that neither write down which headers were read nor read further ones.
_KNOWN = re.compile(
    r"-c|-cubin|-O[0-3]|-[DU]\w.*|-I(?!/).*|-std=c\+\+\d\d|-?-expt-relaxed-constexpr|-ccbin=.*|-?-threads=.*"
    r"|-?-keep|-?-keep-dir=.*|-?-(?:use_fast_math|maxrregcount=\d+)"
    r"|-?-(?:fmad|ftz|prec-div|prec-sqrt)=(?:true|false)"
)
HOST_FLAGS = MappingProxyType(
    {
        "-Xcompiler": re.compile(r"(?:,?-f(?:PIC|no-gnu-unique|no-canonical-system-headers))+"),
        "-Xcudafe": re.compile(r"--diag_suppress=.*"),
    }
)
"""Flags for host code, or for the host's compiler alone, and the words after them."""
_KNOWN_WITH = MappingProxyType({"-gencode": re.compile(r"arch=compute_\w+,code=\w+"), **HOST_FLAGS})
_INCLUDE = re.compile(r'^\s*#\s*include\b\s*(?:[<"]([^>"\n]+)[>"])?', re.MULTILINE)
# The C++ library's headers, and those of the toolkit that do not ask for the flag.
_HEADER = re.compile(
    r"[a-z_]+|(?:assert|float|limits|math|stddef|stdint|stdio|stdlib|string)\.h"
    r"|(?:cuda|cuda_runtime|cuda_runtime_api|cuda_device_runtime_api|cuda_fp16|cuda_bf16|cuda_fp8|math_constants|mma)\.h"
)
# What asks for the flag, or which headers were read.
_ASKS = re.compile(r"EXTENDED_LAMBDA|__nv_is_extended|__cpp_lib_|_GLIBCXX|__has_include|\?\?/")


def without_flag(argv: tuple[str, ...], texts: Mapping[str, str]) -> tuple[str, ...] | None:
    """The argv without the flag; None if the flag is not there, or may make a difference.

    Args:
        argv: of nvcc for one unit.
        texts: all of the user's files that it may read, by path.
    """
    kept = tuple(word for word in argv if not _FLAG.fullmatch(word))
    if kept == argv or not _all_known(kept[1:-3]):  # the rest are the unit, -o and the result
        return None
    return kept if all(_is_same(text, texts) for text in texts.values()) else None


def _all_known(words: tuple[str, ...]) -> bool:
    """Whether all flags are known."""
    left = iter(words)
    for word in left:
        if value := _KNOWN_WITH.get(word):
            if not value.fullmatch(next(left, "")):
                return False
        elif not _KNOWN.fullmatch(word):
            return False
    return True


def _is_same(text: str, texts: Mapping[str, str]) -> bool:
    """Whether a file means the same, whichever headers of the C++ library are read."""
    return (
        not _ASKS.search(text)
        and extension_source.names_known(text)
        and all(
            _is_of_user(name, texts) or _HEADER.fullmatch(name) for name in _INCLUDE.findall(text)
        )
    )


def _is_of_user(name: str, texts: Mapping[str, str]) -> bool:
    """Whether an included file is one of the user's."""
    path = re.sub(r"^(?:\.\./)+", "", posixpath.normpath(name))
    return any(f"/{text}".endswith(f"/{path}") for text in texts)

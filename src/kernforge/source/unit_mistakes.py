# SPDX-License-Identifier: Apache-2.0
"""Errors that a translation unit surely has, seen in its text: compilers take minutes to say them.

They are only said where no include or macro that is not read could make the text right.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from kernforge.source import cpp_text
from kernforge.source.includes import Closure

FIX = "no compiler was started: the text alone shows it"
_EXPAND = re.compile(
    r"\b((?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?_EXPAND|REGISTER_EXTENSION)\s*\("
)
_DEFINES_EXPAND = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(?:STABLE_)?TORCH_LIBRARY\w*_EXPAND", re.MULTILINE
)
# Headers of torch, pybind11, CUDA and the standard libraries define none of these names.
_KNOWN = re.compile(
    r"(?:torch|ATen|c10|pybind11|cub|thrust|cuda)/.*|cuda\w*\.h(?:pp)?|\w+"
    r"|(?:assert|float|limits|math|std\w+|string|time)\.h"
)
_CUDA_HEADER = re.compile(r"cuda_runtime(?:_api)?\.h|vector_types\.h|(?:ATen|c10)/cuda/.*")
_CUDA_TYPE = re.compile(
    r"\b(?:struct|class|union)\s+((?:u?(?:char|short|int|long|longlong)|float|double)[1-4]|dim3)"
    r"\s*(?:final\s*)?[{:]"
)
_WORD = re.compile(r"[A-Za-z_]\w*")
_DECLARED = re.compile(
    r"\b(?!return\b|else\b|new\b)[A-Za-z_][\w:]*(?:<[^;{}()]*>)?[\s&*]+([A-Za-z_]\w*)\s*\("
)


def find(
    units: Iterable[tuple[str, Closure, Mapping[str, str]]],
) -> Iterator[tuple[str, int, str]]:
    """Errors of units: path, line and problem.

    Args:
        units: path of each, the files that it reads, and the texts of those that are known.
    """
    for path, closure, known in units:
        texts = {name: known[name] for name in closure.files if name in known}
        read_all = not closure.opaque and all(map(_KNOWN.fullmatch, closure.foreign))
        has_macros = any(name.endswith("registration.h") for name in closure.files) or any(
            map(_DEFINES_EXPAND.search, texts.values())
        )
        if read_all and not has_macros:
            for name, match in _matches(_EXPAND, texts):
                problem = f'{match[1]} is a macro: #include "registration.h" before it'
                yield name, cpp_text.line_of(texts[name], match.start()), problem
        is_cuda = path.endswith(cpp_text.CUDA_SUFFIXES)
        if is_cuda or any(map(_CUDA_HEADER.fullmatch, closure.foreign)):
            for name, match in _matches(_CUDA_TYPE, texts):
                before = cpp_text.code(texts[name])[: match.start()]
                macro = re.compile(rf"#\s*define\s+{match[1]}\b")
                if before.count("{") == before.count("}") and not any(
                    map(macro.search, texts.values())
                ):
                    problem = f"CUDA defines {match[1]} itself: give this type another name"
                    yield name, cpp_text.line_of(before, match.start()), problem


def _matches(
    pattern: re.Pattern[str], texts: Mapping[str, str]
) -> Iterator[tuple[str, re.Match[str]]]:
    """Where a pattern is in code that no ``#if`` may leave out."""
    for name, text in texts.items():
        if pattern.search(text):
            yield from ((name, match) for match in cpp_text.unconditional(pattern, text))


def unbound(names: Iterable[str], cpp: str, cuda: str) -> str:
    """Why a function that ``functions=`` names cannot be bound; empty if it may be.

    Args:
        cpp: the text of the C++ sources, which must declare it.
        cuda: the text of the CUDA sources.
    """
    code, device = cpp_text.code(cpp), cpp_text.code(cuda)
    includes = re.findall(r'#\s*include\s*[<"]([^>"\n]+)', code)
    if "##" in code or not all(map(_KNOWN.fullmatch, includes)):
        return ""
    words, declared = set(_WORD.findall(code)), set(_DECLARED.findall(f"{code}\n{device}"))
    for name in names:
        plain = re.fullmatch(r"(?:\w+::)*(\w+)", name.strip())
        if plain is None or plain[1] in words:
            continue
        if plain[1] in declared:
            return (
                f"functions= names {name}, which only cuda_sources has: declare it in cpp_sources, "
                f"torch::Tensor {name}(...);"
            )
        if near := difflib.get_close_matches(plain[1], sorted(declared), 1):
            return f"functions= names {name}, which no source has: is {near[0]} meant?"
    return ""

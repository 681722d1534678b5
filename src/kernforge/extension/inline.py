# SPDX-License-Identifier: Apache-2.0
"""Files of a module whose sources are given as text, as ``torch.utils.cpp_extension.load_inline``.

A unit includes torch's headers, then each source as a file of its own with the name of its
argument, so that compilers' messages have the user's names and lines.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from kernforge.errors import UsageError
from kernforge.extension.device.split import is_raw
from kernforge.source import cpp_text, mistakes
from kernforge.source.op_namespace import EXTENSION_NAME

CPP, CUDA = "cpp_sources", "cuda_sources"
UNITS = (f"{CPP}.cpp", f"{CUDA}.cu")
"""Names of the files that are compiled; the other files are included by them."""
_FUNCTIONS = "functions"
_EXTENSION = "torch/extension.h"
_TYPES = "torch/types.h"
_RUNTIME = ("cuda.h", "cuda_runtime.h")
# Headers that raw CUDA may use without an include because torch/types.h includes them. All of them
# take nvcc three times as long as a kernel, the light ones a third of it.
_LIGHT = (
    *("algorithm", "array", "cmath", "cstddef", "cstdint", "cstring", "limits", "optional"),
    *("tuple", "type_traits", "utility"),
)
_HEAVY = ("atomic", "functional", "memory", "sstream", "stdexcept", "string", "vector")
_OF_LIGHT = re.compile(
    r"min|max|minmax|clamp|sort|copy|copy_n|fill|fill_n|transform|find|reverse|array|size_t"
    r"|ptrdiff_t|nullptr_t|byte|u?int(?:8|16|32|64|ptr)_t|abs|r?sqrt|exp2?|log2?|log10|pow|sin|cos"
    r"|tanh?|floor|ceil|round|fma|isnan|isinf|mem(?:cpy|set|cmp|move)|numeric_limits|optional"
    r"|nullopt|(?:make_)?tuple|tie|apply|is_\w+|enable_if\w*|conditional\w*|decay\w*|remove_\w+"
    r"|(?:true|false)_type|void_t|integral_constant|move|forward|(?:make_)?pair|swap|declval"
    r"|exchange|index_sequence\w*|get"
)
_NARROW = {
    "cstdint": re.compile(r"\bu?int(?:8|16|32|64|ptr)_t\b"),
    "cuda_fp16.h": re.compile(r"\b\w*half\w*|\b__h\w+|\b__HALF\w+"),
    "cuda_bf16.h": re.compile(r"\b\w*bf(?:loat)?16\w*|\b__h\w+"),
}
_STD = re.compile(r"\bstd\b(?:\s*::\s*(\w+))?")
_OWN_INCLUDE = re.compile(r"#\s*include\s*(?!<)")
_STABLE_INCLUDE = re.compile(r"#\s*include\s*[<\"]torch/(?:csrc/stable|headeronly)/")
_NOT_STABLE = re.compile(
    r"#\s*include\s*[<\"](?:torch/(?!csrc/stable/|headeronly/|csrc/inductor/aoti_torch/c/)|ATen/|c10/|pybind11/)"
    r"|\bat\s*::|\bc10\s*::|\bpy\s*::|\bPYBIND11_MODULE\b|\btorch\s*::\s*(?:Tensor|empty|zeros|ones)\b"
)
_PATH = re.compile(r"\S+\.(?:cpp|cc|cxx|c|cu|cuh|h|hpp)")


def inline(
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str],
    functions: str | Sequence[str] | Mapping[str, str] | None,
    *,
    error_handling: bool = True,
    implicit_headers: bool = True,
    gil_not_used: bool = False,
) -> dict[str, str]:
    """Texts of the files that ``load_inline`` compiles (``UNITS``) and of those they include.

    Args:
        cpp_sources: C++ sources, of one unit.
        cuda_sources: CUDA sources, of one unit if there are any.
        functions: names of the functions to bind with pybind11; a mapping gives their docstrings.
        error_handling: call each function through torch's translation of errors.
        implicit_headers: put torch's headers before the sources.
        gil_not_used: say in the binding that the functions may run without the GIL.
    """
    cpp, cuda = _named(CPP, cpp_sources), _named(CUDA, cuda_sources)
    bound = {}
    if functions is not None:
        names = functions if isinstance(functions, list | tuple | dict) else [str(functions)]
        texts = ("\n".join(cpp.values()), "\n".join(cuda.values()))
        if problem := mistakes.unbound(names, *texts):
            raise UsageError(problem, hint="name functions as the sources do")
        bound = {_FUNCTIONS: _bindings(functions, error_handling=error_handling)}
    headers: tuple[str, ...] = ()
    if implicit_headers and (bound or not is_stable("\n".join(cpp.values()))):
        headers = (_EXTENSION,)
    lines = _includes(headers, cpp)
    if bound:
        options = ", pybind11::mod_gil_not_used()" if gil_not_used else ""
        opens = f"PYBIND11_MODULE({EXTENSION_NAME}, m{options}) {{\n"
        lines += f'{opens}#include "{_FUNCTIONS}"\n}}\n'
    units = {UNITS[0]: lines}
    if cuda:
        text = "\n".join(cuda.values())
        headers = (*(_standard(text) if is_raw(text) else [_TYPES]), *_RUNTIME)
        units[UNITS[1]] = _includes(headers if implicit_headers else (), cuda)
    return {**units, **cpp, **bound, **cuda}


def joined(files: Mapping[str, str], unit: str) -> str:
    """The text of a unit with those of the files that it includes."""
    lines = (re.sub(r'^#include "(.+)"$', r"\1", line) for line in files[unit].splitlines())
    return "".join(f"{files.get(line, line).rstrip()}\n" for line in lines)


def is_stable(text: str) -> bool:
    """Whether a binding includes torch's stable ABI and uses no other API of torch."""
    return bool(_STABLE_INCLUDE.search(text)) and not _NOT_STABLE.search(cpp_text.code(text))


def _named(argument: str, sources: object) -> dict[str, str]:
    """Sources by the file's name: the argument's, with a number where there are several."""
    listed: list[str] = []
    for source in sources if isinstance(sources, list | tuple) else [sources]:
        if not isinstance(source, str) or _PATH.fullmatch(source):
            value = repr(source) if isinstance(source, str) else f"a {type(source).__name__}"
            raise UsageError(
                f"a source is {value}, not the text of a source",
                hint="load_inline takes the text of sources; load takes paths",
            )
        listed.append(source)
    if len(listed) == 1:
        return {argument: listed[0]}
    return {f"{argument}[{number}]": source for number, source in enumerate(listed)}


def _includes(headers: Sequence[str], files: Mapping[str, str]) -> str:
    lines = [*(f"#include <{name}>\n" for name in headers), *(f'#include "{n}"\n' for n in files)]
    return "".join(lines)


def _standard(text: str) -> list[str]:
    """The headers of the C++ library and of CUDA that a raw CUDA source may use."""
    code = cpp_text.code(text)
    uses = set(_STD.findall(code))
    headers = list(_LIGHT if uses else ())
    # The text of an included file of the project is not known here.
    if _OWN_INCLUDE.search(code) or not all(map(_OF_LIGHT.fullmatch, uses)):
        headers = [*_LIGHT, *_HEAVY]
    return list(dict.fromkeys([*headers, *(n for n, used in _NARROW.items() if used.search(code))]))


def _bindings(functions: str | Sequence[str] | Mapping[str, str], *, error_handling: bool) -> str:
    """The body of the ``PYBIND11_MODULE`` that binds functions."""
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, list | tuple):
        functions = {name: name for name in functions}
    if not isinstance(functions, dict):
        raise UsageError(
            f"functions has the type {type(functions).__name__}",
            hint="give a list of names, or a dict of names and docstrings",
        )
    lines = []
    for name, doc in functions.items():
        value = f"torch::wrap_pybind_function({name})" if error_handling else name
        lines.append(f'm.def("{name}", {value}, {cpp_text.quoted(doc)});\n')
    return "".join(lines)

# SPDX-License-Identifier: Apache-2.0
"""Sources of a JIT module: the files that are generated and the text that is rewritten.

``inline`` writes the files that ``torch.utils.cpp_extension.load_inline`` writes (torch 2.13), with
its headers before a source that needs them. ``register`` changes a source so that it takes the
names of its op namespaces from another object at link time: a process can register a namespace
once, so that each further build needs another name, and a new name must not compile a binding
again.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kernforge.errors import UsageError
from kernforge.source import cpp_text
from kernforge.source.message_names import Part

MAIN, CUDA = "main.cpp", "cuda.cu"
"""Names of the files that ``inline`` makes."""
CPP_LABEL, CUDA_LABEL, FUNCTIONS_LABEL = "cpp_sources", "cuda_sources", "functions"
"""What their sources are called in messages: the arguments of ``load_inline``."""
NAMES_HEADER = "kernforge_names.h"
EXTENSION_NAME = "TORCH_EXTENSION_NAME"
CUDA_SUFFIXES = (".cu", ".cuh")
"""What nvcc compiles."""
_EXTENSION = "#include <torch/extension.h>"
_TYPES = "#include <torch/types.h>"
_RUNTIME = ("#include <cuda.h>", "#include <cuda_runtime.h>")
# Headers that a raw CUDA source may use without an include because torch/types.h includes them, by
# the names of ``std`` that need them. All of them take nvcc three times as long as a kernel, so
# that a source gets those whose names it uses; a source with a name that is not here gets all.
_STANDARD = {
    "algorithm": r"min|max|minmax|clamp|sort|copy|copy_n|fill|fill_n|transform|find|reverse",
    "array": r"array",
    "atomic": r"atomic|memory_order\w*",
    "cmath": r"abs|sqrt|r?sqrt|exp2?|log2?|log10|pow|sin|cos|tan|tanh|floor|ceil|round|fma"
    r"|isnan|isinf",
    "cstddef": r"size_t|ptrdiff_t|nullptr_t|byte",
    "cstdint": r"u?int(?:8|16|32|64|ptr)_t",
    "cstring": r"mem(?:cpy|set|cmp|move)|str(?:len|cmp)",
    "functional": r"function|plus|minus|multiplies|less|greater|hash",
    "limits": r"numeric_limits",
    "memory": r"(?:unique|shared)_ptr|make_(?:unique|shared)",
    "optional": r"optional|nullopt|make_optional",
    "sstream": r"[io]?stringstream",
    "stdexcept": r"runtime_error|invalid_argument|logic_error|out_of_range",
    "string": r"string|to_string",
    "tuple": r"tuple|make_tuple|tie|apply",
    "type_traits": r"is_\w+|enable_if\w*|conditional\w*|decay\w*|remove_\w+|(?:true|false)_type"
    r"|void_t|integral_constant",
    "utility": r"move|forward|pair|make_pair|swap|declval|exchange|index_sequence\w*|get",
    "vector": r"vector",
}
_KNOWN_NAME = re.compile("|".join(_STANDARD.values()))
_NARROW = {
    "cuda_fp16.h": re.compile(r"\b\w*half\w*|\b__h\w+|\b__HALF\w+"),
    "cuda_bf16.h": re.compile(r"\b\w*bf(?:loat)?16\w*|\b__h\w+"),
}
_STD = re.compile(r"\bstd\b(?:\s*::\s*(\w+))?")
_FIXED_INTEGER = re.compile(r"\bu?int(?:8|16|32|64|ptr)_t\b")
_OWN_INCLUDE = re.compile(r"#\s*include\s*(?!<)")
_OF_TORCH = re.compile(
    r"\b(?:torch|at|c10|py|pybind11|caffe2)\s*::|\b(?:TORCH|AT|C10|PYBIND11)_\w+|\bTensor\b"
    r"|[<\"](?:torch|ATen|c10|pybind11|caffe2)/|\bTHC\w*|\bPyObject\b"
)
_STABLE_INCLUDE = re.compile(r"#\s*include\s*[<\"]torch/(?:csrc/stable|headeronly)/")
_NOT_STABLE = re.compile(
    r"#\s*include\s*[<\"](?:torch/(?!csrc/stable/|headeronly/|csrc/inductor/aoti_torch/c/)|ATen/|c10/|pybind11/)"
    r"|\bat\s*::|\bc10\s*::|\bpy\s*::|\bPYBIND11_MODULE\b|\btorch\s*::\s*(?:Tensor|empty|zeros|ones)\b"
)
_TORCH_HEADER = re.compile(
    r"torch/(?!csrc/stable/|headeronly/|csrc/inductor/aoti_torch/c/)|(?:ATen|c10|pybind11)/"
)
_PATH = re.compile(r"\S+\.(?:cpp|cc|cxx|c|cu|cuh|h|hpp)")
REGISTRATION_HINT = (
    '#include "registration.h" of a kernel project defines it; torch\'s own macros are '
    "TORCH_LIBRARY(name, m) and PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)"
)
_REGISTRATION = re.compile(
    r"^[ \t]*"
    r"(?P<macro>(?:STABLE_)?TORCH_LIBRARY(?:_IMPL|_FRAGMENT)?_EXPAND|REGISTER_EXTENSION)"
    r"\s*\(\s*(?P<name>\w+)",
    re.MULTILINE,
)
_MODULE = re.compile(r"\bPYBIND11_MODULE\s*\(\s*(\w+)\s*,|\bPyInit_(\w+)\s*\(")
_HEADER = """#pragma once
// Torch's macros that register operators, but for the name, which comes at link time: an object of
// the same class with the same arguments.
{names}
#define KERNFORGE_PASTE_(A, B) A##B
#define KERNFORGE_PASTE(A, B) KERNFORGE_PASTE_(A, B)
#define KERNFORGE_OBJECT(KIND, NAME, KEY, MODULE, FUNCTION)                                   \\
  static void FUNCTION(torch::Library&);                                                      \\
  static const torch::detail::TorchLibraryInit KERNFORGE_PASTE(FUNCTION, _done)(              \\
      torch::Library::KIND, &FUNCTION, NAME, KEY, __FILE__, __LINE__);                        \\
  void FUNCTION(torch::Library& MODULE)
#define KERNFORGE_LIBRARY(NAME, MODULE)                                                       \\
  KERNFORGE_OBJECT(DEF, NAME, std::nullopt, MODULE,                                           \\
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_LIBRARY_FRAGMENT(NAME, MODULE)                                              \\
  KERNFORGE_OBJECT(FRAGMENT, NAME, std::nullopt, MODULE,                                      \\
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_LIBRARY_IMPL(NAME, KEY, MODULE)                                             \\
  KERNFORGE_OBJECT(IMPL, NAME, std::make_optional(c10::DispatchKey::KEY), MODULE,             \\
                   KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_OBJECT(KIND, NAME, KEY, MODULE, FUNCTION)                            \\
  static void FUNCTION(torch::stable::detail::StableLibrary&);                                \\
  static const torch::stable::detail::StableTorchLibraryInit KERNFORGE_PASTE(FUNCTION, _done)( \\
      torch::stable::detail::StableLibrary::Kind::KIND, &FUNCTION, NAME, KEY, __FILE__,       \\
      __LINE__);                                                                              \\
  void FUNCTION(torch::stable::detail::StableLibrary& MODULE)
#define KERNFORGE_STABLE_LIBRARY(NAME, MODULE)                                                \\
  KERNFORGE_STABLE_OBJECT(DEF, NAME, nullptr, MODULE,                                         \\
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_LIBRARY_FRAGMENT(NAME, MODULE)                                       \\
  KERNFORGE_STABLE_OBJECT(FRAGMENT, NAME, nullptr, MODULE,                                    \\
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
#define KERNFORGE_STABLE_LIBRARY_IMPL(NAME, KEY, MODULE)                                      \\
  KERNFORGE_STABLE_OBJECT(IMPL, NAME, #KEY, MODULE,                                           \\
                          KERNFORGE_PASTE(kernforge_library_, __COUNTER__))
"""
_NEAR = 0.75
_DECLARATION = 'extern "C" __attribute__((visibility("hidden"))) const char {symbol}[];'


@dataclass(frozen=True, slots=True, kw_only=True)
class InlineFile:
    """A file that is generated of the user's sources.

    Attributes:
        parts: where the user's sources are in it.
    """

    text: str
    parts: tuple[Part, ...]


def inline(
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str],
    functions: str | Sequence[str] | Mapping[str, str] | None,
    *,
    error_handling: bool = True,
    implicit_headers: bool = True,
    gil_not_used: bool = False,
) -> dict[str, InlineFile]:
    """Each file that ``load_inline`` compiles, by the file's name.

    Args:
        cpp_sources: C++ sources; joined to one file.
        cuda_sources: CUDA sources; joined to one file if there are any.
        functions: names of the functions to bind with pybind11; a mapping gives their docstrings.
        error_handling: call each function through torch's translation of errors.
        implicit_headers: put torch's headers before the sources.
        gil_not_used: say in the binding that the functions may run without the GIL.

    Raises:
        UsageError: ``functions`` is neither names nor a mapping of names, or a source is not text.
    """
    cpp, cuda = _listed(cpp_sources), _listed(cuda_sources)
    _check_functions(functions, "\n".join((*cpp, *cuda)))
    bound = []
    if functions is not None:
        bound = _bindings(functions, error_handling=error_handling, gil_not_used=gil_not_used)
    prepend = implicit_headers and (bool(bound) or not is_stable("\n".join(cpp)))
    files = {MAIN: _joined([_EXTENSION] if prepend else [], CPP_LABEL, cpp, bound)}
    if cuda:
        headers: tuple[str, ...] = ()
        if implicit_headers:
            text = "\n".join(cuda)
            headers = (*(_standard(text) if is_raw(text) else [_TYPES]), *_RUNTIME)
        files[CUDA] = _joined(headers, CUDA_LABEL, cuda)
    return files


def _check_functions(functions: object, text: str) -> None:
    """Refuse a name that the sources do not have, if they have one like it or include nothing.

    An included file may have it, and so may a macro that puts names together.
    """
    words = set(re.findall(r"\w+", text))
    names = [functions] if isinstance(functions, str) else functions
    for name in names if isinstance(names, list | tuple | dict) else ():
        if not isinstance(name, str) or name in words or "::" in name or "##" in text:
            continue
        near = difflib.get_close_matches(name, words, n=1, cutoff=_NEAR)
        if near or "#include" not in text:
            raise UsageError(
                f"functions names {name!r}, which no source defines",
                hint=f"did you mean {near[0]!r}?" if near else "name functions of the sources",
            )


def _joined(
    headers: Sequence[str], label: str, sources: Sequence[str], bound: Sequence[str] = ()
) -> InlineFile:
    """A file of headers, sources and generated bindings, each on lines of its own."""
    parts, line = [], len(headers) + 1
    for number, source in enumerate(sources):
        count = source.count("\n") + 1
        name = f"{label}[{number}]" if len(sources) > 1 else label
        parts.append(Part(label=name, first=line, count=count))
        line += count
    if bound:  # Line 1 is that of the first function.
        parts.append(Part(label=FUNCTIONS_LABEL, first=line + 1, count=len(bound) - 1))
    text = "\n".join((*headers, *sources, *bound, ""))
    return InlineFile(text=text, parts=tuple(parts))


def is_raw(text: str) -> bool:
    """Whether a source uses nothing of torch outside its comments and strings."""
    return not _OF_TORCH.search(cpp_text.code(text))


def _standard(text: str) -> list[str]:
    """Includes of the headers whose names a raw CUDA source uses."""
    code = cpp_text.code(text)
    uses = _STD.findall(code)
    lists = {name: re.compile(names) for name, names in _STANDARD.items()}
    wanted = {n for use in uses for n, names in lists.items() if names.fullmatch(use)}
    # The text of an included file of the project is not known here.
    if not names_known(text) or _OWN_INCLUDE.search(code):
        wanted = set(_STANDARD)
    if _FIXED_INTEGER.search(code):
        wanted.add("cstdint")
    narrow = [name for name, used in _NARROW.items() if used.search(code)]
    return [f"#include <{name}>" for name in (*sorted(wanted), *narrow)]


def names_known(text: str) -> bool:
    """Whether the header of every name of ``std`` in a source is known."""
    return all(_KNOWN_NAME.fullmatch(use) for use in _STD.findall(cpp_text.code(text)))


def is_stable(text: str) -> bool:
    """Whether a binding includes torch's stable ABI and uses no other API of torch."""
    return bool(_STABLE_INCLUDE.search(text)) and not _NOT_STABLE.search(cpp_text.code(text))


def is_torch_header(name: str) -> bool:
    """Whether an included header is of torch's C++ API, which takes long to compile."""
    return bool(_TORCH_HEADER.match(name))


def lacks_name(output: str) -> bool:
    """Whether nvcc reports a name that is not known."""
    return bool(re.search(r'cuda_sources[^\n]*error: (?:identifier|name|namespace) "', output))


def missing_macro(texts: Mapping[str, str], defined: Collection[str] = ()) -> tuple[str, int, str]:
    """A macro of kernforge's ``registration.h`` that sources use and nothing defines.

    Args:
        texts: sources, and what they include, by path.
        defined: op namespaces whose registrations are rewritten (``register``).

    Returns:
        Path, line and macro; empty texts if there is none.
    """
    for path, text in texts.items():
        for match in _REGISTRATION.finditer(text):
            macro, name = match["macro"], match["name"]
            if name in defined and macro != "REGISTER_EXTENSION":
                continue
            if not any(re.search(rf"#\s*define\s+{macro}\b", each) for each in texts.values()):
                return path, text.count("\n", 0, match.start()) + 1, macro
    return "", 0, ""


def namespaces(texts: Sequence[str]) -> frozenset[str]:
    """Names of the op namespaces that sources define; an extended one does not count."""
    matches = (match for text in texts for match in cpp_text.LIBRARY.finditer(text))
    return frozenset(match["name"] for match in matches if not match["kind"])


def module_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Names of the Python modules that sources define, as written in the sources."""
    names = [a or b for text in texts for a, b in _MODULE.findall(text)]
    return tuple(dict.fromkeys(names))


def register(text: str, defined: frozenset[str]) -> str:
    """Take the names of these namespaces from ``NAMES_HEADER``; line numbers do not change."""

    def replacement(match: re.Match[str]) -> str:
        if match["name"] not in defined:
            return match[0]
        kind = f"{match['stable'] or ''}LIBRARY{match['kind'] or ''}"
        return f"KERNFORGE_{kind}({symbol(match['name'])},"

    return cpp_text.LIBRARY.sub(replacement, text)


def names_header(defined: frozenset[str]) -> str:
    """Text of the header that the output of ``register`` includes."""
    lines = (_DECLARATION.format(symbol=symbol(name)) for name in sorted(defined))
    return _HEADER.format(names="\n".join(lines))


def names_source(names: Mapping[str, str]) -> str:
    """Source of the object that holds the names of this build, by the names in the sources."""
    lines = [
        f'{_DECLARATION.format(symbol=symbol(name))}\nconst char {symbol(name)}[] = "{actual}";'
        for name, actual in sorted(names.items())
    ]
    return "\n".join([*lines, ""])


def symbol(name: str) -> str:
    """Name of the symbol that holds a namespace."""
    return f"kernforge_namespace_of_{name}"


def _listed(sources: object) -> list[str]:
    """Sources as a list; a single source becomes a list of one."""
    listed = sources if isinstance(sources, list | tuple) else [] if sources is None else [sources]
    for source in listed:
        if not isinstance(source, str) or _PATH.fullmatch(source):
            value = repr(source) if isinstance(source, str) else f"a {type(source).__name__}"
            raise UsageError(
                f"a source is {value}, not the text of a source",
                hint="load_inline takes the text of sources; load takes paths",
            )
    return list(listed)


def _bindings(
    functions: str | Sequence[str] | Mapping[str, str], *, error_handling: bool, gil_not_used: bool
) -> list[str]:
    if isinstance(functions, str):
        functions = [functions]
    if isinstance(functions, list | tuple):
        functions = {name: name for name in functions}
    if not isinstance(functions, dict):
        raise UsageError(
            f"functions has the type {type(functions).__name__}",
            hint="give a list of names, or a dict of names and docstrings",
        )
    options = ", pybind11::mod_gil_not_used()" if gil_not_used else ""
    lines = [f"PYBIND11_MODULE({EXTENSION_NAME}, m{options}) {{"]
    for name, doc in functions.items():
        value = f"torch::wrap_pybind_function({name})" if error_handling else name
        lines.append(f'm.def("{name}", {value}, {cpp_text.quoted(doc)});')
    return [*lines, "}"]
